"""The counters of one GPU, read in few calls. What it does not have is asked once, and then left out."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from gpudoctor.worker.measuring.watching import numbers
from gpudoctor.worker.probes.nvml_getters import VALUE_TYPES

SUCCESS, INVALID_ARGUMENT = 0, 2
STATE = "nvlink_state"
BATCH = 24  # in a long list some fields come back unset (580.159.04, H200)
MANY = 0.1  # of the fields: the list is too long, and not these fields are odd
WHY = {
    2: "this driver has no such field",
    3: "not supported by this GPU or its driver",
    4: "no permission",
    13: "this driver has no such function",
    21: "NVML has no data",
    25: "this driver has another version of the function",
}

Name = str  # of a counter: "ecc_corrected", or of a link "nvlink_replay:3"


class Field(NamedTuple):
    """kind: NVML's type of the value. A field that was left unset has another one."""

    name: Name
    number: int
    scope: int
    kind: int


class Counters:
    """not_watched: counter (of links once for all) -> why. calls: to NVML in one reading."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self.not_watched: Dict[str, str] = {}
        self._nvml = nvml
        self._handle = handle
        self._size = BATCH
        self._together: List[Field] = []
        self._alone: List[Field] = []
        self._getters: List[Tuple[Name, str, Tuple[int, ...]]] = []
        for name in dict.fromkeys((*numbers.OF_GPU, *numbers.GETTERS)):
            self._add(name, name, numbers.OF_GPU.get(name), 0, numbers.GETTERS.get(name))
        self._add_links()

    @property
    def calls(self) -> int:
        return -(-len(self._together) // self._size) + len(self._alone) + len(self._getters)

    @property
    def names(self) -> List[Name]:
        return [field.name for field in (*self._together, *self._alone)] + [name for name, _, _ in self._getters]

    def read(self) -> Dict[Name, float]:
        """The values that were answered. A field that a batch leaves unset is asked alone; with many such, batches shrink."""
        found: Dict[Name, float] = {}
        unset: List[Field] = []
        for start in range(0, len(self._together), self._size):
            batch = self._together[start : start + self._size]
            for field, answer in zip(batch, self._asked(batch)):
                value = _value(field, answer)
                if value is not None:
                    found[field.name] = value
                elif (alone := self._value_alone(field)) is not None:
                    found[field.name] = alone
                    unset.append(field)
        for field in self._alone:
            value = self._value_alone(field)
            if value is not None:
                found[field.name] = value
        self._learn(unset)
        for name, getter, arguments in self._getters:
            answer = self._got(getter, arguments)
            if isinstance(answer, int):
                found[name] = answer
        return {name: _decoded(name, value) for name, value in found.items()}

    def _learn(self, unset: List[Field]) -> None:
        if len(unset) > MANY * len(self._together) and self._size > 1:
            self._size //= 2
        elif unset:
            self._alone += unset
            self._together = [field for field in self._together if field not in unset]

    def _add(
        self, name: Name, shown: str, number: Optional[int], scope: int, getter: Optional[Tuple[str, Tuple[int, ...]]]
    ) -> bool:
        """Whether this counter can be read. shown: its name if it cannot."""
        code: Any = INVALID_ARGUMENT
        if number is not None:
            code, kind = self._kind(number, scope)
            if code == SUCCESS:
                self._together.append(Field(name, number, scope, kind))
                return True
        if getter is not None:
            function, arguments = getter
            answer = self._got(function, arguments)
            if isinstance(answer, int):
                self._getters.append((name, function, arguments))
                return True
            code = code if number is not None and code != INVALID_ARGUMENT else answer
        self.not_watched.setdefault(shown, WHY.get(_code(code), "NVML: %s" % code))
        return False

    def _add_links(self) -> None:
        """A counter that the first link does not have, the others do not have either."""
        links = [link for link in range(numbers.MOST_LINKS) if self._got("nvmlDeviceGetNvLinkState", (link,)) == 1]
        fields: Dict[str, Optional[int]] = {**numbers.OF_LINK, **numbers.OF_NEW_LINK}
        for link in links:
            for name, number in fields.items():
                if name == STATE and not self._asked_alone(numbers.OF_LINK[STATE], link):
                    number = None  # 0, or no answer, although the link is up
                getter = numbers.LINK_GETTERS.get(name)
                own = (getter[0], (link, *getter[1])) if getter else None
                if name not in self.not_watched:
                    self._add("%s:%d" % (name, link), name, number, link, own)
        if not links:
            self.not_watched["nvlink"] = "no NVLink is up"

    def _asked_alone(self, number: int, scope: int) -> float:
        code, kind = self._kind(number, scope)
        return (self._value_alone(Field("", number, scope, kind)) or 0.0) if code == SUCCESS else 0.0

    def _kind(self, number: int, scope: int) -> Tuple[Any, int]:
        """NVML's code for a field, and the type of its value."""
        (answer,) = self._asked([Field("", number, scope, 0)])
        if answer is None:
            return self._failure, 0
        code, kind = answer.nvmlReturn, answer.valueType
        if code == SUCCESS and kind not in VALUE_TYPES:
            return 21, 0
        return code, kind

    def _value_alone(self, field: Field) -> Optional[float]:
        (answer,) = self._asked([field])
        return _value(field, answer)

    def _asked(self, fields: List[Field]) -> List[Any]:
        try:
            return list(self._nvml.nvmlDeviceGetFieldValues(self._handle, [(field.number, field.scope) for field in fields]))
        except Exception as failure:
            self._failure = _failure(failure)
            return [None] * len(fields)

    _failure: Any = INVALID_ARGUMENT

    def _got(self, getter: str, arguments: Tuple[int, ...]) -> Any:
        """The number, or why there is none, as a text or as [NVML's code]."""
        try:
            answer = getattr(self._nvml, getter)(self._handle, *arguments)
        except Exception as failure:
            return _failure(failure)
        return answer if isinstance(answer, int) else str(answer)


def _failure(failure: Exception) -> Any:
    """Not an int, which would be an answer."""
    code = getattr(failure, "value", None)
    return [code] if isinstance(code, int) else "%s: %s" % (type(failure).__name__, failure)


def _code(code: Any) -> Any:
    return code[0] if isinstance(code, list) else code


def _value(field: Field, answer: Any) -> Optional[float]:
    if answer is None or answer.nvmlReturn != SUCCESS or answer.valueType != field.kind:
        return None
    value: float = getattr(answer.value, VALUE_TYPES[field.kind])
    return value


def _decoded(name: Name, value: float) -> float:
    kind = name.partition(":")[0]
    if kind == STATE:
        return int(value != 0)  # a link that saves power is up: NVML_NVLINK_STATE_SLEEP is 2
    return numbers.bit_error_rate(int(value)) if kind in numbers.RATES else value
