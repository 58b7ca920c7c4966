"""The evaluation of some readings: what one transaction of the alarm consumer stores."""

import heapq
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from tally.devices.model.alarms import (
    ALWAYS_REACHABLE,
    Alarm,
    AlarmEntry,
    AlarmRule,
    BoardMemory,
    Reachability,
    Silence,
    Transition,
    find_outdated,
    find_silent,
    next_silence,
    remember_reading,
    with_alarm,
)
from tally.devices.model.records import Reading
from tally.devices.repository.alarms import MAX_ALARM_WRITES, Evaluation

MAX_SILENT_BOARDS: Final = 20  # of a transaction


class FleetMemory:
    """The boards, their groups and rules, and what the rules remember of them."""

    def __init__(
        self, rules: Sequence[AlarmRule], resumed: Reachability = ALWAYS_REACHABLE
    ) -> None:
        self._rules = rules
        self._resumed = resumed
        self._by_group: dict[str | None, list[AlarmRule]] = {}
        self.groups: dict[str, str | None] = {}
        self._registered: dict[str, int] = {}
        self._memories: dict[str, BoardMemory] = {}
        # When to look at a board for silence; entries may be too early.
        self._deadlines: list[tuple[int, str]] = []
        # The entry that counts, by board.
        self._watched: dict[str, int] = {}

    @property
    def has_silence_rules(self) -> bool:
        return any(isinstance(rule.condition, Silence) for rule in self._rules)

    def add(self, hardware_id: str, group: str | None, registered_ms: int) -> None:
        self.groups[hardware_id] = group
        self._registered[hardware_id] = registered_ms
        self._watch(hardware_id)

    def put(self, memory: BoardMemory) -> None:
        self._memories[memory.hardware_id] = memory
        self._watch(memory.hardware_id)

    def get(self, hardware_id: str) -> BoardMemory:
        return self._memories.get(hardware_id) or BoardMemory(hardware_id)

    def reachability(self, hardware_id: str) -> Reachability:
        registered_ms = self._registered.get(hardware_id, 0)
        return msgspec.structs.replace(self._resumed, registered_ms=registered_ms)

    def next_silence(self, hardware_id: str) -> int | None:
        """Return when a board has been silent for too long, if no reading arrives."""
        memory, rules = self.get(hardware_id), self.rules(hardware_id)
        return next_silence(memory, rules, self.reachability(hardware_id))

    def rules(self, hardware_id: str) -> list[AlarmRule]:
        """Return the rules that apply to a board; none applies to a device that was deleted."""
        if hardware_id not in self.groups:
            return []
        group = self.groups[hardware_id]
        if group not in self._by_group:
            self._by_group[group] = [
                rule
                for rule in self._rules
                if rule.scope.hardware_id is None and rule.scope.includes("", group)
            ]
        own = [rule for rule in self._rules if rule.scope.hardware_id == hardware_id]
        return [*self._by_group[group], *own]

    def outdated(self) -> Iterator[str]:
        """Iterate over boards of which rules that no longer apply remember something."""
        for hardware_id in [*self._memories]:
            if find_outdated(self.get(hardware_id), self.rules(hardware_id)):
                yield hardware_id

    def may_be_silent(self, now_ms: int) -> bool:
        """Whether it is time to look at some board."""
        return bool(self._deadlines) and self._deadlines[0][0] <= now_ms

    def take_silent(self, now_ms: int) -> list[str]:
        """Return some boards that are silent, if any; their alarms must be raised."""
        silent: list[str] = []
        while self._deadlines and len(silent) < MAX_SILENT_BOARDS:
            due, hardware_id = self._deadlines[0]
            if due > now_ms:
                break
            heapq.heappop(self._deadlines)
            if self._watched.get(hardware_id) != due:
                continue
            del self._watched[hardware_id]
            deadline = self.next_silence(hardware_id)
            if deadline is not None and deadline <= now_ms:
                silent.append(hardware_id)
            else:
                self._watch(hardware_id)
        return silent

    def _watch(self, hardware_id: str) -> None:
        """Look at a board at its deadline, unless that is planned for then or earlier."""
        deadline = self.next_silence(hardware_id)
        watched = self._watched.get(hardware_id)
        if deadline is not None and (watched is None or deadline < watched):
            self._watched[hardware_id] = deadline
            heapq.heappush(self._deadlines, (deadline, hardware_id))


class AlarmBatch:
    """Collects the outcome of some readings, as long as it fits into one transaction."""

    def __init__(self, fleet: FleetMemory, now_ms: int, new_id: Callable[[], str]) -> None:
        self._fleet = fleet
        self._now_ms = now_ms
        self._new_id = new_id
        self._boards: dict[str, BoardMemory] = {}
        self._raised: dict[str, Alarm] = {}
        self._cleared: dict[str, AlarmEntry] = {}

    def evaluate(self, reading: Reading) -> bool:
        """Evaluate a reading; return False, without an effect, if it needs another transaction."""
        hardware_id = reading.hardware_id
        rules = self._fleet.rules(hardware_id)
        if not rules:
            return True
        known = self._boards.get(hardware_id) or self._fleet.get(hardware_id)
        memory, transitions = remember_reading(known, rules, reading, self._now_ms)
        is_first = not self._boards
        # A transaction writes an item once: an alarm is not raised and cleared in the same one.
        if any(transition.alarm_id in self._raised for transition in transitions):
            return False
        if self._size + len(transitions) + 1 > MAX_ALARM_WRITES and not is_first:
            return False
        self._boards[hardware_id] = self._with_transitions(memory, transitions)
        return True

    def raise_silence(self, hardware_id: str) -> bool:
        """Raise the alarms of a silent board, or return False if it needs another transaction."""
        memory = self._fleet.get(hardware_id)
        rules, reachability = self._fleet.rules(hardware_id), self._fleet.reachability(hardware_id)
        due = find_silent(memory, rules, self._now_ms, reachability)
        if self._size + len(due) + 1 > MAX_ALARM_WRITES and self._boards:
            return False
        self._boards[hardware_id] = self._with_transitions(memory, due)
        return True

    def forget_outdated(self, hardware_id: str) -> None:
        """Clear the alarms of rules that no longer apply to a board, and forget those rules."""
        memory = self._fleet.get(hardware_id)
        outdated = find_outdated(memory, self._fleet.rules(hardware_id))
        kept = {key: known for key, known in memory.rules.items() if key not in outdated}
        is_forgotten = not kept and not self._fleet.rules(hardware_id)
        self._boards[hardware_id] = (
            BoardMemory(hardware_id)
            if is_forgotten
            else BoardMemory(hardware_id, memory.newest, memory.arrived_ms, kept)
        )
        for known in outdated.values():
            if known.alarm_id is not None:
                entry = AlarmEntry("cleared", self._now_ms, "rule_changed")
                self._cleared[known.alarm_id] = entry

    def evaluation(self, position: str) -> Evaluation:
        return Evaluation(position, self._boards, [*self._raised.values()], self._cleared)

    @property
    def _size(self) -> int:
        return len(self._boards) + len(self._raised) + len(self._cleared)

    def _with_transitions(
        self, memory: BoardMemory, transitions: Sequence[Transition]
    ) -> BoardMemory:
        for transition in transitions:
            time, value = transition.timestamp_ms, transition.value
            if transition.alarm_id is not None:
                entry = AlarmEntry("cleared", self._now_ms, "recovered", time, value)
                self._cleared[transition.alarm_id] = entry
                memory = with_alarm(memory, transition.rule, None)
                continue
            alarm_id = self._new_id()
            entry = AlarmEntry("open", self._now_ms, None, time, value)
            self._raised[alarm_id] = Alarm(
                alarm_id, transition.rule, memory.hardware_id, "open", (entry,)
            )
            memory = with_alarm(memory, transition.rule, alarm_id)
        return memory
