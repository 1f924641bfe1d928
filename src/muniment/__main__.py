"""`python -m muniment` is the `muniment` command."""

from muniment.cli.app import main

main()
