from muniment.storage.base import Storage
from muniment.testing.storage_suite import StorageSuite, make_oracle


class TestInMemoryStorage(StorageSuite):
    async def make(self) -> Storage:
        return await make_oracle()

    async def reopen(self, storage: Storage) -> Storage:
        await storage.stop()
        await storage.start()
        return storage
