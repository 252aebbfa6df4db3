"""The names of nvidia-smi's fields in its three formats, with the NVML getters that they come from.

https://docs.nvidia.com/deploy/nvidia-smi/index.html
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

from gpudoctor.facts.nvml_values import ARCHITECTURES, BRANDS, COMPUTE_MODES, MIB, RECOVERY_ACTIONS, VIRTUALIZATION

# Getter, kind of value, then the names in -q | in -q -x (empty: the same) | in --query-gpu. A name is a path in which only
# letters and digits count; "," separates the names of several driver releases, "+" joins values to be added.
_TABLE = """
Name                        text       productname | | name, gpu_name
UUID                        text       gpuuuid | uuid | uuid, gpu_uuid
Brand                       brand      productbrand | |
Architecture                generation productarchitecture | |
PciInfo.busId               text       pci/busid | pci/pcibusid | pci.bus_id, gpu_bus_id
PciInfo.pciDeviceId         hex        pci/deviceid | pci/pcideviceid | pci.device_id
PciInfo.pciSubSystemId      hex        pci/subsystemid | pci/pcisubsystemid | pci.sub_device_id
MinorNumber                 number     minornumber | |
VbiosVersion                text       vbiosversion | | vbios_version
BoardPartNumber             text       boardpartnumber | |
InforomImageVersion         text       inforomversion/imageversion | inforomversion/imgversion | inforom.img, inforom.image
GspFirmwareVersion          text       gspfirmwareversion, gspfirmwareversion/current | | gsp.mode.current
ModuleId                    number     platforminfo/moduleid, modulid, gpumoduleid | |
CudaComputeCapability       pair       computecapability | | compute_cap
PersistenceMode             yes        persistencemode | | persistence_mode
DisplayActive               yes        displayactive | | display_active
ComputeMode                 compute    computemode | | compute_mode
MigMode.0                   yes        migmode/current | migmode/currentmig | mig.mode.current
MigMode.1                   yes        migmode/pending | migmode/pendingmig | mig.mode.pending
EccMode.0                   yes        eccmode/current | eccmode/currentecc | ecc.mode.current
EccMode.1                   yes        eccmode/pending | eccmode/pendingecc | ecc.mode.pending
DriverModel                 model      drivermodel/current | drivermodel/currentdm | driver_model.current
VirtualizationMode          virtual    gpuvirtualizationmode/virtualizationmode | |
FieldValues.GET_GPU_RECOVERY_ACTION recovery gpurecoveryaction | | gpu_recovery_action
CurrPcieLinkGeneration      number     pci/gpulinkinfo/pciegeneration/current | pci/pcigpulinkinfo/pciegen/currentlinkgen \
| pcie.link.gen.current, pcie.link.gen.gpucurrent
MaxPcieLinkGeneration       number     pci/gpulinkinfo/pciegeneration/max | pci/pcigpulinkinfo/pciegen/maxlinkgen \
| pcie.link.gen.max
GpuMaxPcieLinkGeneration    number     pci/gpulinkinfo/pciegeneration/devicemax | pci/pcigpulinkinfo/pciegen/maxdevicelinkgen \
| pcie.link.gen.gpumax
CurrPcieLinkWidth           number     pci/gpulinkinfo/linkwidth/current | pci/pcigpulinkinfo/linkwidths/currentlinkwidth \
| pcie.link.width.current
MaxPcieLinkWidth            number     pci/gpulinkinfo/linkwidth/max | pci/pcigpulinkinfo/linkwidths/maxlinkwidth \
| pcie.link.width.max
PcieReplayCounter           number     pci/replayssincereset, pci/replaycounter | pci/replaycounter |
FieldValues.PCIE_REPLAY_ROLLOVER_COUNTER number pci/replaynumberrollovers | pci/replayrollovercounter |
FanSpeed                    number     fanspeed | | fan.speed
PerformanceState            number     performancestate | | pstate
CurrentClocksEventReasons   hex        | | clocks_event_reasons.active, clocks_throttle_reasons.active
FieldValues.CLOCKS_EVENT_REASON_SW_POWER_CAP us clockseventreasonscounters/swpowercapping \
| clockseventreasonscounters/clockseventreasonscountersswpowercap | clocks_event_reasons_counters.sw_power_cap
FieldValues.CLOCKS_EVENT_REASON_SYNC_BOOST us clockseventreasonscounters/syncboost \
| clockseventreasonscounters/clockseventreasonscounterssyncboost | clocks_event_reasons_counters.sync_boost
FieldValues.CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN us clockseventreasonscounters/swthermalslowdown \
| clockseventreasonscounters/clockseventreasonscountersswthermslowdown | clocks_event_reasons_counters.sw_thermal_slowdown
FieldValues.CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN us clockseventreasonscounters/hwthermalslowdown \
| clockseventreasonscounters/clockseventreasonscountershwthermslowdown | clocks_event_reasons_counters.hw_thermal_slowdown
FieldValues.CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN us clockseventreasonscounters/hwpowerbraking \
| clockseventreasonscounters/clockseventreasonscountershwpowerbrake | clocks_event_reasons_counters.hw_power_brake_slowdown
MemoryInfo.total            mib        fbmemoryusage/total | | memory.total
MemoryInfo.free             mib        fbmemoryusage/free | | memory.free
MemoryInfo.used             mib        fbmemoryusage/used | | memory.used
MemoryInfo_v2.reserved      mib        fbmemoryusage/reserved | | memory.reserved
BAR1MemoryInfo.bar1Total    mib        bar1memoryusage/total | |
BAR1MemoryInfo.bar1Used     mib        bar1memoryusage/used | |
BAR1MemoryInfo.bar1Free     mib        bar1memoryusage/free | |
UtilizationRates.gpu        number     utilization/gpu | utilization/gpuutil | utilization.gpu
UtilizationRates.memory     number     utilization/memory | utilization/memoryutil | utilization.memory
TotalEccErrors.volatile_corrected number eccerrors/volatile/sramcorrectable + eccerrors/volatile/dramcorrectable, \
eccerrors/volatile/singlebit/total | | ecc.errors.corrected.volatile.total
TotalEccErrors.volatile_uncorrected number eccerrors/volatile/sramuncorrectableparity + \
eccerrors/volatile/sramuncorrectablesecded + eccerrors/volatile/dramuncorrectable, eccerrors/volatile/sramuncorrectable + \
eccerrors/volatile/dramuncorrectable, eccerrors/volatile/doublebit/total | | ecc.errors.uncorrected.volatile.total
TotalEccErrors.aggregate_corrected number eccerrors/aggregate/sramcorrectable + eccerrors/aggregate/dramcorrectable, \
eccerrors/aggregate/singlebit/total | | ecc.errors.corrected.aggregate.total
TotalEccErrors.aggregate_uncorrected number eccerrors/aggregate/sramuncorrectableparity + \
eccerrors/aggregate/sramuncorrectablesecded + eccerrors/aggregate/dramuncorrectable, eccerrors/aggregate/sramuncorrectable + \
eccerrors/aggregate/dramuncorrectable, eccerrors/aggregate/doublebit/total | | ecc.errors.uncorrected.aggregate.total
SramEccErrorStatus.volatileCor number  eccerrors/volatile/sramcorrectable | |
SramEccErrorStatus.volatileUncParity number eccerrors/volatile/sramuncorrectableparity | |
SramEccErrorStatus.volatileUncSecDed number eccerrors/volatile/sramuncorrectablesecded | |
SramEccErrorStatus.aggregateCor number eccerrors/aggregate/sramcorrectable | |
SramEccErrorStatus.aggregateUncParity number eccerrors/aggregate/sramuncorrectableparity | |
SramEccErrorStatus.aggregateUncSecDed number eccerrors/aggregate/sramuncorrectablesecded | |
SramEccErrorStatus.bThresholdExceeded yes eccerrors/aggregate/sramthresholdexceeded | |
SramEccErrorStatus.aggregateUncBucketL2 number eccerrors/aggregateuncorrectablesramsources/sraml2 | |
SramEccErrorStatus.aggregateUncBucketSm number eccerrors/aggregateuncorrectablesramsources/sramsm | |
SramEccErrorStatus.aggregateUncBucketPcie number eccerrors/aggregateuncorrectablesramsources/srampcie | |
SramEccErrorStatus.aggregateUncBucketMcu number eccerrors/aggregateuncorrectablesramsources/srammicrocontroller | |
SramEccErrorStatus.aggregateUncBucketOther number eccerrors/aggregateuncorrectablesramsources/sramother | |
RepairStatus.0              yes        eccerrors/channelrepairpending | |
RepairStatus.1              yes        eccerrors/tpcrepairpending | |
RetiredPages.single_bit     pages      retiredpages/singlebitecc | retiredpages/multiplesinglebitretirement/retiredcount \
| retired_pages.single_bit_ecc.count, retired_pages.sbe
RetiredPages.double_bit     pages      retiredpages/doublebitecc | retiredpages/doublebitretirement/retiredcount \
| retired_pages.double_bit.count, retired_pages.dbe
RetiredPagesPendingStatus   yes        retiredpages/pendingpageblacklist, retiredpages/pending, \
retiredpages/pendingpageretirement | retiredpages/pendingblacklist, retiredpages/pendingretirement | retired_pages.pending
RemappedRows.0              number     remappedrows/correctableerror | remappedrows/remappedrowcorr | remapped_rows.correctable
RemappedRows.1              number     remappedrows/uncorrectableerror | remappedrows/remappedrowunc \
| remapped_rows.uncorrectable
RemappedRows.2              yes        remappedrows/pending | remappedrows/remappedrowpending | remapped_rows.pending
RemappedRows.3              yes        remappedrows/remappingfailureoccurred | remappedrows/remappedrowfailure \
| remapped_rows.failure
RowRemapperHistogram.max    number     remappedrows/bankremapavailabilityhistogram/max, \
remappedrows/bankremapavailabilityhistogram/maximum | remappedrows/rowremapperhistogram/rowremapperhistogrammax |
RowRemapperHistogram.high   number     remappedrows/bankremapavailabilityhistogram/high \
| remappedrows/rowremapperhistogram/rowremapperhistogramhigh |
RowRemapperHistogram.partial number    remappedrows/bankremapavailabilityhistogram/partial \
| remappedrows/rowremapperhistogram/rowremapperhistogrampartial |
RowRemapperHistogram.low    number     remappedrows/bankremapavailabilityhistogram/low \
| remappedrows/rowremapperhistogram/rowremapperhistogramlow |
RowRemapperHistogram.none   number     remappedrows/bankremapavailabilityhistogram/none \
| remappedrows/rowremapperhistogram/rowremapperhistogramnone |
Temperature.gpu             number     temperature/gpucurrenttemp, temperature/gpu | temperature/gputemp | temperature.gpu
MarginTemperature           number     temperature/gputlimittemp | temperature/gputemptlimit | temperature.gpu.tlimit
TemperatureThreshold.shutdown number   temperature/gpushutdowntemp | temperature/gputempmaxthreshold |
TemperatureThreshold.slowdown number   temperature/gpuslowdowntemp | temperature/gputempslowthreshold |
TemperatureThreshold.max_operating number temperature/gpumaxoperatingtemp | temperature/gputempmaxgputhreshold |
TemperatureThreshold.memory number     temperature/memorymaxoperatingtemp | temperature/gputempmaxmemthreshold |
FieldValues.TEMPERATURE_SHUTDOWN_TLIMIT number temperature/gpushutdowntlimittemp | temperature/gputempmaxtlimitthreshold |
FieldValues.TEMPERATURE_SLOWDOWN_TLIMIT number temperature/gpuslowdowntlimittemp | temperature/gputempslowtlimitthreshold |
FieldValues.TEMPERATURE_GPU_MAX_TLIMIT number temperature/gpumaxoperatingtlimittemp \
| temperature/gputempmaxgputlimitthreshold |
FieldValues.TEMPERATURE_MEM_MAX_TLIMIT number temperature/memorymaxoperatingtlimittemp \
| temperature/gputempmaxmemtlimitthreshold |
FieldValues.MEMORY_TEMP     number     temperature/memorycurrenttemp | temperature/memorytemp | temperature.memory
PowerUsage                  watts      gpupowerreadings/averagepowerdraw, gpupowerreadings/powerdraw, powerreadings/powerdraw \
| | power.draw, power.draw.average
FieldValues.POWER_INSTANT   watts      gpupowerreadings/instantaneouspowerdraw | gpupowerreadings/instantpowerdraw \
| power.draw.instant
PowerManagementLimit        watts      gpupowerreadings/requestedpowerlimit, powerreadings/powerlimit | | power.limit
EnforcedPowerLimit          watts      gpupowerreadings/currentpowerlimit, powerreadings/enforcedpowerlimit \
| | enforced.power.limit
PowerManagementDefaultLimit watts      gpupowerreadings/defaultpowerlimit, powerreadings/defaultpowerlimit \
| | power.default_limit
PowerManagementLimitConstraints.0 watts gpupowerreadings/minpowerlimit, powerreadings/minpowerlimit | | power.min_limit
PowerManagementLimitConstraints.1 watts gpupowerreadings/maxpowerlimit, powerreadings/maxpowerlimit | | power.max_limit
ClockInfo.graphics          number     clocks/graphics | clocks/graphicsclock | clocks.gr, clocks.current.graphics
ClockInfo.sm                number     clocks/sm | clocks/smclock | clocks.sm, clocks.current.sm
ClockInfo.memory            number     clocks/memory | clocks/memclock | clocks.mem, clocks.current.memory
ClockInfo.video             number     clocks/video | clocks/videoclock | clocks.video, clocks.current.video
MaxClockInfo.graphics       number     maxclocks/graphics | maxclocks/graphicsclock | clocks.max.gr, clocks.max.graphics
MaxClockInfo.sm             number     maxclocks/sm | maxclocks/smclock | clocks.max.sm
MaxClockInfo.memory         number     maxclocks/memory | maxclocks/memclock | clocks.max.mem, clocks.max.memory
MaxClockInfo.video          number     maxclocks/video | maxclocks/videoclock |
ApplicationsClock.graphics  number     applicationsclocks/graphics | applicationsclocks/graphicsclock \
| clocks.applications.gr, clocks.applications.graphics
ApplicationsClock.memory    number     applicationsclocks/memory | applicationsclocks/memclock \
| clocks.applications.mem, clocks.applications.memory
DefaultApplicationsClock.graphics number defaultapplicationsclocks/graphics | defaultapplicationsclocks/graphicsclock \
| clocks.default_applications.gr, clocks.default_applications.graphics
DefaultApplicationsClock.memory number defaultapplicationsclocks/memory | defaultapplicationsclocks/memclock \
| clocks.default_applications.mem, clocks.default_applications.memory
"""
# Answers that are only meaningful as a whole.
WHOLE = ("MigMode", "EccMode", "RemappedRows", "RepairStatus", "PowerManagementLimitConstraints", "SramEccErrorStatus")
FORMS = ("q", "x", "csv")
_OPEN, _CLOSED = ("enabled", "yes", "active", "on", "true", "1"), ("disabled", "no", "notactive", "off", "false", "0")
# Text printed by nvidia-smi instead of a value -> NVML's code.
_REFUSALS = {
    "na": 3,
    "notsupported": 3,
    "insufficientpermissions": 4,
    "gpuislost": 15,
    "gpurequiresreset": 16,
    "requestedfunctionalityhasbeendeprecated": 26,
    "unknownerror": 999,
    "err": 999,
    "error": 999,
}


class Row(NamedTuple):
    """getter: dotted path in NVML's answer. names: alternatives, each a list of names whose values are added."""

    getter: str
    parse: Callable[[str], Any]
    names: tuple[tuple[str, ...], ...]


def plain(name: str) -> str:
    """The letters and digits of a name."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def refusal(text: str) -> dict[str, int] | None:
    """NVML's error for texts such as N/A; None for a value."""
    word = plain(text)
    code = _REFUSALS.get(word) or (15 if word.startswith("gpuislost") else None)
    return {"error": code} if code else None


@cache
def rows(form: str) -> tuple[Row, ...]:
    """The fields as named in one format of nvidia-smi's output."""
    column = FORMS.index(form)
    return tuple(row for line in _TABLE.strip().splitlines() if (row := _row(line, column)).names)


def _row(line: str, column: int) -> Row:
    getter, kind, rest = line.split(None, 2)
    columns = [part.strip() for part in rest.split("|")]
    names = columns[column] or (columns[0] if column == 1 else "")
    alternatives = (tuple(map(str.strip, alternative.split("+"))) for alternative in names.split(",") if alternative.strip())
    return Row(getter, KINDS[kind], tuple(alternatives))


def values(form: str, said: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    """Getter -> value, or NVML's error, for every field of one GPU."""
    for row in rows(form):
        found = [answer for names in row.names if (answer := _answer(row, names, said)) is not None]
        if found:
            yield row.getter, next((answer for answer in found if not isinstance(answer, dict)), found[0])


def _answer(row: Row, names: tuple[str, ...], said: Mapping[str, str]) -> Any:
    texts = [_said(name, said) for name in names]
    if None in texts:
        return None
    refused = [answer for text in texts if (answer := refusal(text or ""))]
    parsed = [] if refused else [row.parse(text or "") for text in texts]
    if refused or None in parsed:
        return refused[0] if len(refused) == len(texts) else None
    return sum(parsed) if len(parsed) > 1 else parsed[0]


def _said(path: str, said: Mapping[str, str]) -> str | None:
    """The text at a path, or the N/A of its section."""
    while path not in said and "/" in path:
        path = path.rpartition("/")[0]
        if path in said and not refusal(said[path]):
            return None
    return said.get(path)


def _number(text: str) -> int | None:
    match = re.search(r"-?\d+", text)
    return int(match[0]) if match else None


def _scaled(factor: int) -> Callable[[str], int | None]:
    def parse(text: str) -> int | None:
        match = re.search(r"-?\d+(?:\.\d+)?", text)
        return round(float(match[0]) * factor) if match else None

    return parse


def _hexadecimal(text: str) -> int | None:
    return int(text, 16) if re.fullmatch(r"(0x)?[0-9A-Fa-f]+", text) else None


def yes(text: str) -> int | None:
    """1 for Enabled, Yes, Active, 0 for their opposites."""
    word = plain(text)
    return 1 if word in _OPEN else 0 if word in _CLOSED else None


def _code(words: Mapping[int, str], **others: int) -> Callable[[str], int | None]:
    codes = {plain(word): code for code, word in words.items()} | others
    return lambda text: codes.get(plain(text))


def _pair(text: str) -> list[int] | None:
    match = re.fullmatch(r"(\d+)\.(\d+)", text)
    return [int(match[1]), int(match[2])] if match else None


def _pages(text: str) -> list[None] | None:
    """As many entries as there are pages; their addresses are not shown."""
    count = _number(text)
    return None if count is None else [None] * count


compute_mode = _code(COMPUTE_MODES, eprocess=3, ethread=1, exclusive=3)
KINDS: dict[str, Callable[[str], Any]] = {
    "text": str,
    "number": _number,
    "hex": _hexadecimal,
    "mib": _scaled(MIB),
    "watts": _scaled(1000),
    "us": _scaled(1000),
    "yes": yes,
    "pair": _pair,
    "pages": _pages,
    "brand": _code(BRANDS),
    "generation": _code(ARCHITECTURES, adalovelace=8),
    "compute": compute_mode,
    "virtual": _code(VIRTUALIZATION),
    "recovery": _code(RECOVERY_ACTIONS, reset=1, reboot=2),
    "model": _code({0: "WDDM", 1: "TCC", 2: "MCDM"}, wdm=1),
}
