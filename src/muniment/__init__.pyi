"""The types of what `__init__.py` loads late."""

from muniment.client.asynchronous import AsyncClient as AsyncClient
from muniment.client.errors import BudgetExceeded as BudgetExceeded
from muniment.client.errors import Conflict as Conflict
from muniment.client.errors import Denied as Denied
from muniment.client.errors import DisabledTenancy as DisabledTenancy
from muniment.client.errors import Internal as Internal
from muniment.client.errors import InvalidKey as InvalidKey
from muniment.client.errors import Malformed as Malformed
from muniment.client.errors import MunimentError as MunimentError
from muniment.client.errors import NoAnswer as NoAnswer
from muniment.client.errors import NotFound as NotFound
from muniment.client.errors import ReadOnly as ReadOnly
from muniment.client.errors import Unavailable as Unavailable
from muniment.client.errors import UnexpectedAnswer as UnexpectedAnswer
from muniment.client.records import Document as Document
from muniment.client.records import Grant as Grant
from muniment.client.records import Store as Store
from muniment.client.records import Subject as Subject
from muniment.client.sync import Client as Client
from muniment.client.transport import Limits as Limits
from muniment.main import open_async_client, open_client

open = open_client
open_async = open_async_client

__version__: str
