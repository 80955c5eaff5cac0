"""KV sequences that are lent without a thought for what is in them."""

from __future__ import annotations

from legato.kv.slots import Holder, KvSlots, Lease


class FirstFree(KvSlots):
    """Lends the lowest free number."""

    def acquire(self, holder: Holder, now_s: float) -> Lease | None:
        for slot in self.slots:
            if slot.holder is None:
                self.lend(slot, holder, now_s)
                return Lease(slot.number)
        return None
