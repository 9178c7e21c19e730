"""What keeps two runs apart, and the macro of the model that switches each off."""

from __future__ import annotations

#: The list that the model shares with the simulation.
SHARED = {
    "read_back_starts": {"READBACK_RUN": 0},  # a run starts when its record was sent
    "read_back_renewals": {"READBACK_RENEW": 0},  # a renewal counts when it was sent
    "wait_for_lease": {"WAIT_RULE": 0},  # a task found RUNNING starts at once
    "validated_metadata": {"VALID_META": 0},  # commits with the metadata of a client that was thrown out
    "fence_dead_transaction": {"END_HOLDERS": 0},  # earlier holders' producers are left alone
    "ownership_check": {"CHECK": 0},  # offers what was decided under another nonce
    "guard": {"DEADLINE": 0},  # nobody ends a run at its deadline
    "sentinel": {"SENTINEL": 0},  # what came back of a transaction is taken for all of it
}

#: What the simulation switches off and the model cannot say, with the reason.
NOT_HERE = {
    "kept_epoch": "the model has no tasks that are deleted",
    "epoch_floor": "the model has no tasks that are forgotten",
    "kept_claims": "the model has no limits",
    "given_back": "the model has no limits",
    "given_over": "the model has no pools",
}

#: Those only the model can switch off by themselves: in the code they are no step of their own.
FINER = {
    "fence_record": {"FENCE_TXN": 0},  # no nonce is committed and read back
    "membership_question": {"QUESTION": 0},  # a lane ends others' producers without asking whether it is counted in
    "late_holders": {"END_HOLDERS": 1},  # holders that only reading shows are not ended
    "stable_answer": {"STABLE": 0},  # step 1 does not wait for pending transactions
    "settle": {"SETTLE": 0},  # after an unclear end the same is offered again without looking
    "settle_first": {"SETTLE_FIRST": 0},  # an acquisition begins while a transaction of the lane is in doubt
    "last_renewal": {"WAIT_RULE": 1},  # the wait counts from whichever renewal was seen
    "every_process": {"WAIT_FOR": 0},  # a run of an earlier process with the same lane is taken for one's own
    "deadline_per_nonce": {"DL_NONCE": 0},  # a renewal moves all deadlines of a lane
    "drained": {"REL_DRAINED": 0},  # "released" while runs live
    "waited": {"REL_WAITED": 0},  # "released" while an earlier holder's run is waited for
    "nonce_of_release": {"REL_NONCE": 0},  # "released" counts for whoever holds the partition
    "foreign_nonce": {"FOREIGN": 0},  # a later nonce than the own one is ignored
}

SAFEGUARDS = SHARED | FINER
