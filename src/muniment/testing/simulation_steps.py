"""The steps of a simulated script: each chooses a whole request from the world as known so far.

A step is a small function of the world and of its own dice, and a row in STEPS with its weight. It
chooses requests that are mostly good, and now and then one that has to be refused; what it asks
for is up to it, what the answer must be is not: the storages have to agree about it.
"""

import json
from collections.abc import Callable

from msgspec import structs

from muniment.api.native.shapes import time_text
from muniment.testing.simulation_choices import (
    ASSIGNMENTS,
    BAD_CONTENTS,
    CONTENTS,
    GOOD_NAMES,
    ID_KINDS,
    IDEMPOTENCY_KEY,
    LIMITS,
    PREFIXES_OF_PATHS,
    RIGHTS,
    STORES,
    SUBJECT_KINDS,
    a_match,
    a_name,
    a_path,
    a_store,
    a_subject,
    a_version,
    administrator,
    an_id,
    anybody,
    grants,
    keeper,
    unknown_id,
)
from muniment.testing.simulation_refusals import spoiled
from muniment.testing.simulation_world import (
    DEED,
    IDENTIFYING,
    Dice,
    Request,
    World,
    encode_body,
    identify,
    query_of,
    time_of,
)

Step = Callable[[World, Dice], Request]

# Stores


def create_store(world: World, dice: Dice) -> Request:
    """A store of any kind of owner."""
    body: dict[str, object] = {"name": a_name(dice)}
    actor = anybody(world, dice)
    if dice.some(0.4):
        subject = a_subject(world, dice, everybody=0.35)
        body["owner"] = subject
        if subject["kind"] != "principal":
            actor = administrator(world, dice)
        if dice.some(0.3):
            body["promotion_policy"] = dice.choice(("direct", "proposal", "never"))
    if dice.some(0.4):
        body["description"] = dice.choice(("", "what it is", None, "d" * 1025))
    if dice.some(0.2):
        body["default"] = True
    if found := grants(world, dice):
        body["grants"] = found
    return world.request(actor, "POST", STORES, body=body)


def list_stores(world: World, dice: Dice) -> Request:
    """Stores, filtered or not."""
    query = {
        "limit": dice.choice(LIMITS),
        "name": dice.choice((None, None, *GOOD_NAMES)),
        "include_archived": dice.choice((None, "true", "false")),
        "include_deleted": dice.choice((None, None, "true")),
    }
    actor = anybody(world, dice) if dice.some(0.5) else administrator(world, dice)
    return world.request(actor, "GET", STORES, query)


def get_store(world: World, dice: Dice) -> Request:
    """One store."""
    store = a_store(world, dice)
    return world.request(keeper(world, dice, store), "GET", f"{STORES}/{store.id}")


def update_store(world: World, dice: Dice) -> Request:
    """Some of a store's own fields."""
    store = a_store(world, dice)
    fields: dict[str, object] = {
        "name": a_name(dice),
        "description": dice.choice((None, "changed")),
        "promotion_policy": dice.choice(("direct", "direct", "direct", "proposal")),
        "require_distinct_reviewer": dice.some(0.5),
        "default": dice.some(0.7),
    }
    chosen = dice.sample(sorted(fields), dice.choice((0, 1, 1, 2, 3)))
    body = {"expected_version": a_version(dice, store)} | {name: fields[name] for name in chosen}
    actor = keeper(world, dice, store)
    if "promotion_policy" in chosen:
        actor = administrator(world, dice)
    return world.request(actor, "PATCH", f"{STORES}/{store.id}", body=body)


def archive_store(world: World, dice: Dice) -> Request:
    """Makes a store read-only."""
    store = dice.of(world.stores) if world.stores else a_store(world, dice)
    body = {"expected_version": a_version(dice, store)}
    return world.request(
        keeper(world, dice, store), "POST", f"{STORES}/{store.id}/archive", body=body
    )


def delete_store(world: World, dice: Dice) -> Request:
    """Erases a store."""
    store = dice.of(world.stores) if world.stores else a_store(world, dice)
    query = {"expected_version": a_version(dice, store) if dice.some(0.5) else None}
    return world.request(keeper(world, dice, store), "DELETE", f"{STORES}/{store.id}", query)


def explain_access(world: World, dice: Dice) -> Request:
    """What somebody may do, and why."""
    store = a_store(world, dice)
    subject = None
    if dice.some(0.6):
        found = a_subject(world, dice)
        subject = f"{found['kind']}:{found.get(found['kind'], world.workspace)}"
    return world.request(
        keeper(world, dice, store), "GET", f"{STORES}/{store.id}/access", {"subject": subject}
    )


# Documents


def get_document(world: World, dice: Dice) -> Request:
    """A document, or that it has not changed."""
    store = a_store(world, dice)
    path = a_path(dice, store, held=0.75)
    headers = {}
    if dice.some(0.2):
        headers["If-None-Match"] = f'"{store.hashes.get(path, "0" * 64)}"'
    return world.request(
        keeper(world, dice, store),
        "GET",
        f"{STORES}/{store.id}/document",
        {"path": path},
        headers=headers,
    )


def put_document(world: World, dice: Dice) -> Request:
    """Creates or replaces a document."""
    store = a_store(world, dice, writable=0.92)
    path = a_path(dice, store, held=0.5)
    content = dice.choice((*CONTENTS[:3], f"written in step {world.step}"))
    if dice.some(0.08):
        content = dice.choice(CONTENTS)
    elif dice.some(0.03):
        content = dice.choice(BAD_CONTENTS)
    return world.request(
        keeper(world, dice, store),
        "PUT",
        f"{STORES}/{store.id}/document",
        {"path": path},
        body={"content": content},
        headers=a_match(dice, store, path),
    )


def delete_document(world: World, dice: Dice) -> Request:
    """Removes a document."""
    store = a_store(world, dice)
    path = a_path(dice, store, held=0.75)
    return world.request(
        keeper(world, dice, store),
        "DELETE",
        f"{STORES}/{store.id}/document",
        {"path": path},
        headers=a_match(dice, store, path),
    )


def list_documents(world: World, dice: Dice) -> Request:
    """The first page of a store's documents."""
    store = a_store(world, dice, writable=0.8)
    query = {
        "path_prefix": dice.choice(PREFIXES_OF_PATHS) if dice.some(0.4) else None,
        "limit": dice.choice(LIMITS),
    }
    return world.request(keeper(world, dice, store), "GET", f"{STORES}/{store.id}/documents", query)


# Access


def create_assignment(world: World, dice: Dice) -> Request:
    """Grants somebody something, often on a store that nobody can use."""
    store = a_store(world, dice)
    useless = {name: one for name, one in world.stores.items() if one.writable and not one.users}
    if useless and dice.some(0.6):
        store = dice.of(useless)
    body: dict[str, object] = {
        "subject": a_subject(world, dice),
        "permissions": dice.choice(RIGHTS) if dice.some(0.95) else [],
    }
    if dice.some(0.5):
        body["memory_store"] = store.id
    if "memory_store" not in body or dice.some(0.03):
        body["resource"] = {"kind": "memory_store", "memory_store": store.id}
    actor = keeper(world, dice, store) if store.users else administrator(world, dice)
    return world.request(actor, "POST", ASSIGNMENTS, body=body)


def list_assignments(world: World, dice: Dice) -> Request:
    """Assignments of a store, of a subject (often the asker), of both, or all."""
    store = a_store(world, dice)
    query: dict[str, object] = {"limit": dice.choice(LIMITS)}
    actor = administrator(world, dice)
    about = dice.choice(("store", "subject", "subject", "both", "all"))
    if about in ("store", "both"):
        query["memory_store"] = store.id
        actor = keeper(world, dice, store)
    if about in ("subject", "both"):
        subject = a_subject(world, dice, everybody=0.5)
        query["subject"] = f"{subject['kind']}:{subject.get(subject['kind'], world.workspace)}"
        if dice.some(0.3):
            actor = anybody(world, dice)
            query["subject"] = f"principal:{actor.principal}"
    return world.request(actor, "GET", ASSIGNMENTS, query)


def delete_assignment(world: World, dice: Dice) -> Request:
    """Ends an assignment."""
    identifier = an_id(dice, world.assignments, "assignment")
    return world.request(administrator(world, dice), "DELETE", f"{ASSIGNMENTS}/{identifier}")


# Identities


def whoami(world: World, dice: Dice) -> Request:
    """Who somebody is, first those of whom it is not known."""
    actor = anybody(world, dice)
    unknown = {name: one for name, one in world.actors.items() if one.principal is None}
    return world.request(dice.of(unknown) if unknown else actor, "GET", "/v1/whoami")


def create_key(world: World, dice: Dice) -> Request:
    """A key, perhaps of a principal that is there, perhaps one that soon expires."""
    role = "admin" if dice.some(0.2) else "member"
    body: dict[str, object] = {"name": a_name(dice), "role": role}
    if dice.some(0.3):
        body["principal"] = an_id(dice, world.principals, "principal")
    if dice.some(0.2):
        expiry = time_of(world.step + dice.choice((-1, 5, 20, 100)))
        body["expires_at"] = time_text(expiry) if dice.some(0.9) else "tomorrow"
    if dice.some(0.03):
        body["role"] = "king"
    return world.request(administrator(world, dice), "POST", "/v1/api-keys", body=body)


def revoke_key(world: World, dice: Dice) -> Request:
    """Ends a key."""
    identifier = an_id(dice, world.keys, "key")
    return world.request(administrator(world, dice), "DELETE", f"/v1/api-keys/{identifier}")


def create_principal(world: World, dice: Dice) -> Request:
    """A person or a service, perhaps of an external id that is taken."""
    body: dict[str, object] = {"name": a_name(dice)}
    if dice.some(0.6):
        body["kind"] = dice.choice(("person", "person", "service", "robot"))
    if dice.some(0.6):
        body["external_id"] = dice.choice(("ext-1", "ext-2", "ext-ü", f"ext {world.step}"))
    return world.request(administrator(world, dice), "POST", "/v1/principals", body=body)


def create_delegation(world: World, dice: Dice) -> Request:
    """Lets somebody act as somebody else."""
    kind = dice.choice(("principal", "api_key", "principal", "session"))
    delegate = {
        "kind": kind,
        kind: an_id(dice, getattr(world, SUBJECT_KINDS[kind]), ID_KINDS[kind]),
    }
    whom = an_id(dice, world.principals, "principal")
    own = {name: one for name, one in world.actors.items() if one.principal == whom}
    actor = dice.of(own) if own and dice.some(0.4) else administrator(world, dice)
    body = {"principal": whom, "delegate": delegate}
    return world.request(actor, "POST", "/v1/delegations", body=body)


def delete_delegation(world: World, dice: Dice) -> Request:
    """Ends a delegation."""
    identifier = an_id(dice, world.delegations, "delegation")
    return world.request(administrator(world, dice), "DELETE", f"/v1/delegations/{identifier}")


def create_owner(world: World, dice: Dice) -> Request:
    """An agent, a Session or a surface scope."""
    path = dice.choice(("/v1/agents", "/v1/sessions", "/v1/surface-scopes"))
    body: dict[str, object] = {"name": a_name(dice)}
    if path == "/v1/surface-scopes":
        body["kind"] = dice.choice(("public", "private", "personal", "secret"))
    actor = anybody(world, dice) if path == "/v1/sessions" else administrator(world, dice)
    return world.request(actor, "POST", path, body=body)


def list_identities(world: World, dice: Dice) -> Request:
    """Keys, principals, delegations or owners."""
    path = dice.choice(
        (
            "/v1/api-keys",
            "/v1/principals",
            "/v1/delegations",
            "/v1/agents",
            "/v1/sessions",
            "/v1/surface-scopes",
        )
    )
    return world.request(
        administrator(world, dice), "GET", path, {"limit": dice.choice((1, 2, 50, None))}
    )


# Events


def store_events(world: World, dice: Dice) -> Request:
    """Events of a store from some number on."""
    store = a_store(world, dice)
    query = {"limit": dice.choice(LIMITS), "after": dice.choice((None, 0, 1, 3, 10, 1000))}
    return world.request(keeper(world, dice, store), "GET", f"{STORES}/{store.id}/events", query)


def workspace_events(world: World, dice: Dice) -> Request:
    """Events of the workspace, all of them or those about the asker."""
    query = {"limit": dice.choice(LIMITS), "after": dice.choice((None, None, 0, 5, 40))}
    return world.request(anybody(world, dice), "GET", "/v1/events", query)


# What was asked before


def next_page(world: World, dice: Dice) -> Request:
    """Goes on with a list, whatever was written since; seldom with another one's cursor."""
    if not world.cursors:
        return list_documents(world, dice)
    found = {one.page: one for one in world.cursors}
    documents = {page: one for page, one in found.items() if "/documents" in one.request.path}
    cursor = dice.of(documents if documents and dice.some(0.6) else found)
    request, page = cursor.request, cursor.page
    actor = world.actors.get(request.actor) or anybody(world, dice)
    if dice.some(0.12):
        actor = anybody(world, dice)
    query: dict[str, object] = {**query_of(request), "page": page}
    query.pop("after", None)
    if dice.some(0.3):
        query["limit"] = dice.choice((1, 2, 5))
    path = request.path
    if dice.some(0.05):
        path = f"{STORES}/{a_store(world, dice).id}/documents"
    elif dice.some(0.05):
        query["page"] = page[:-1] + ("A" if page[-1] != "A" else "B")
    elif dice.some(0.05):
        query["path_prefix"] = "/n"
    return world.request(actor, "GET", path, query)


def send_again(world: World, dice: Dice) -> Request:
    """A request of before, byte for byte: often one that carries an idempotency key."""
    sent = {one.text(): one for one in world.requests if one.method != "GET"}
    once = {n: one for n, one in sent.items() if IDEMPOTENCY_KEY in dict(one.headers)}
    found = once if once and dice.some(0.7) else sent
    return clear(dice.of(found)) if found else whoami(world, dice)


def clear(request: Request) -> Request:
    """The request while the database answers."""
    return structs.replace(request, database_answers=None, database_returns=False)


def send_changed(world: World, dice: Dice) -> Request:
    """A request of before that says something else, under the same idempotency key if it has one.

    Or the same from somebody else, whose keys are others.
    """
    request = send_again(world, dice)
    said = (
        json.loads(request.body) if request.body[:1] == b"{" and request.body[-1:] == b"}" else {}
    )
    if not said or dice.some(0.2):
        if dice.some(0.5):
            kept = [each for each in request.headers if not each[0].startswith("If-")]
            return structs.replace(request, headers=tuple(kept))
        actor = anybody(world, dice)
        kept = [each for each in request.headers if each[0] not in IDENTIFYING]
        return structs.replace(request, actor=actor.name, headers=(*identify(actor), *kept))
    field = dice.choice(sorted(said))
    said[field] = {"name": "other", "content": "other", "role": "member"}.get(field, said[field])
    if isinstance(said[field], int):
        said[field] += 1
    return structs.replace(request, body=encode_body(said))


# Jobs


def list_jobs(world: World, dice: Dice) -> Request:
    """The jobs that are left to be done."""
    query = {"limit": dice.choice((1, 2, None))}
    return world.request(administrator(world, dice), "GET", "/v1/jobs", query)


def retry_job(world: World, dice: Dice) -> Request:
    """Has a job tried again; mostly looks for one where none is known."""
    if not world.jobs and dice.some(0.8):
        return list_jobs(world, dice)
    identifier = an_id(dice, world.jobs, "job")
    return world.request(administrator(world, dice), "POST", f"/v1/jobs/{identifier}/retry")


def work(world: World, dice: Dice) -> Request:
    """A worker's turn, seldom one that the database cuts short."""
    answers = dice.choice((None, None, None, 0, 1, 2))
    return Request(
        "worker", DEED, "work", database_answers=answers, database_returns=dice.some(0.5)
    )


def refused(world: World, dice: Dice) -> Request:
    """A request of another step with something wrong about it."""
    name = dice.choice([name for name in STEPS if name not in AGAIN])
    return spoiled(world, dice, STEPS[name][1](world, dice))


# The operator


def create_workspace(world: World, dice: Dice) -> Request:
    """A further workspace."""
    return Request("operator", DEED, f"create_workspace {dice.choice(('acme', 'größe', ''))}")


def disable_workspace(world: World, dice: Dice) -> Request:
    """Ends a workspace for a while, seldom the one that most happens in."""
    known = world.workspace if dice.some(0.07) else dice.of({one: one for one in world.workspaces})
    identifier = unknown_id(dice, "workspace") if dice.some(0.1) else known
    return Request("operator", DEED, f"disable_workspace {identifier}")


def enable_workspace(world: World, dice: Dice) -> Request:
    """Lets a workspace go on, mostly one that is disabled."""
    disabled = {one: one for one, status in world.workspaces.items() if status == "disabled"}
    known = dice.of(disabled or {one: one for one in world.workspaces})
    if world.workspaces.get(world.workspace) == "disabled":
        known = world.workspace
    identifier = unknown_id(dice, "workspace") if dice.some(0.1) else known
    return Request("operator", DEED, f"enable_workspace {identifier}")


STEPS: dict[str, tuple[int, Step]] = {
    "create_store": (12, create_store),
    "list_stores": (6, list_stores),
    "get_store": (5, get_store),
    "update_store": (8, update_store),
    "archive_store": (2, archive_store),
    "delete_store": (4, delete_store),
    "explain_access": (6, explain_access),
    "get_document": (10, get_document),
    "put_document": (90, put_document),
    "delete_document": (14, delete_document),
    "list_documents": (10, list_documents),
    "create_assignment": (14, create_assignment),
    "list_assignments": (14, list_assignments),
    "delete_assignment": (4, delete_assignment),
    "whoami": (4, whoami),
    "create_key": (6, create_key),
    "revoke_key": (2, revoke_key),
    "create_principal": (4, create_principal),
    "create_delegation": (5, create_delegation),
    "delete_delegation": (2, delete_delegation),
    "create_owner": (6, create_owner),
    "list_identities": (12, list_identities),
    "store_events": (6, store_events),
    "workspace_events": (5, workspace_events),
    "create_workspace": (1, create_workspace),
    "disable_workspace": (2, disable_workspace),
    "enable_workspace": (4, enable_workspace),
    "next_page": (14, next_page),
    "send_again": (12, send_again),
    "send_changed": (8, send_changed),
    "list_jobs": (3, list_jobs),
    "retry_job": (12, retry_job),
    "work": (4, work),
    "refused": (20, refused),
}
"""Every step: how often it is taken, and how it chooses its request."""


PROLOGUE = (
    *("whoami",) * 3,
    *("create_key",) * 4,
    *("create_store",) * 4,
    *("create_owner",) * 3,
    *("create_delegation",) * 2,
)
"""The steps that begin every script, so that there is something to choose from."""

AGAIN = (
    "next_page",
    "send_again",
    "send_changed",
    "refused",
    "work",
    "create_workspace",
    "disable_workspace",
    "enable_workspace",
)
"""Steps whose request is made of an earlier one, or is none."""


def choose(world: World, dice: Dice) -> tuple[str, Request]:
    """The name of the world's next step, and its request."""
    name = drawn(dice)
    if world.workspaces.get(world.workspace) == "disabled" and dice.some(0.15):
        name = "enable_workspace"
    if world.step <= len(PROLOGUE):
        name = PROLOGUE[world.step - 1]
    request = STEPS[name][1](world, dice)
    return name, request if name in AGAIN else hardened(world, dice, request)


def drawn(dice: Dice) -> str:
    """The name of a step, by weight."""
    return dice.choices(list(STEPS), [weight for weight, _ in STEPS.values()])[0]


def hardened(world: World, dice: Dice, request: Request) -> Request:
    """The request, perhaps under an idempotency key, perhaps while the database goes away."""
    if request.method != "GET" and dice.some(0.4):
        key = f"key {world.step}" if dice.some(0.85) else f"key of {dice.randrange(3)}"
        headers = (*request.headers, (IDEMPOTENCY_KEY, key))
        request = structs.replace(request, headers=headers)
    deletes = request.method == "DELETE" and request.path.count("/") == 3
    if dice.some(0.5 if deletes else 0.02):
        answers = 2 if deletes else dice.randrange(3)
        back = dice.some(0.5)
        request = structs.replace(request, database_answers=answers, database_returns=back)
    return request
