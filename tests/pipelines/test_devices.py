"""What is said of made-up hardware, and which weights it is refused."""

import dataclasses
import re
from pathlib import Path

import pytest

from pipelines import devices
from pipelines.devices import Device, check_weights_fit, described_cpu, described_gpus
from schemas.errors import SettingsError

GB = 1_000_000_000

CPU = Device(
    kind="cpu",
    name="AMD EPYC 9655",
    num_devices=1,
    num_cores=16,
    memory_bytes=64 * GB,
    compute_capability=None,
    flags=("avx2", "avx512f", "avx512_vnni"),
)
X86 = "processor\t: 0\nmodel name\t: {name}\nflags\t\t: fpu sse2 {flags}\n\nprocessor\t: 1\n"


def gpu(capability: tuple[int, int], memory_bytes: int = 80 * GB) -> Device:
    return dataclasses.replace(
        CPU,
        kind="cuda",
        name="NVIDIA",
        memory_bytes=memory_bytes,
        compute_capability=capability,
    )


@dataclasses.dataclass
class Card:
    name: str
    total: int
    capability: tuple[int, int]


class FakeNvml:
    """A driver with the given cards; without any list there is no driver."""

    class NVMLError(Exception):
        """NVIDIA's base of all errors."""

    def __init__(self, cards: list[Card] | None) -> None:
        self.cards = cards
        self.is_connected = False

    def nvmlInit(self) -> None:
        if self.cards is None:
            raise self.NVMLError("Driver Not Loaded")
        self.is_connected = True

    def nvmlShutdown(self) -> None:
        self.is_connected = False

    def nvmlDeviceGetCount(self) -> int:
        return len(self.cards or [])

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Card:
        return (self.cards or [])[index]

    def nvmlDeviceGetName(self, handle: Card) -> str:
        return handle.name

    def nvmlDeviceGetMemoryInfo(self, handle: Card) -> Card:
        return handle

    def nvmlDeviceGetCudaComputeCapability(self, handle: Card) -> tuple[int, int]:
        return handle.capability


# What is described


def test_an_x86_cpu_has_the_instruction_sets_that_matter_in_a_fixed_order():
    cpuinfo = X86.format(name="Intel Xeon", flags="amx_int8 avx512_vnni avx512f avx2 aes")

    cpu = described_cpu(cpuinfo=cpuinfo, num_cores=2, memory_bytes=GB)

    assert (cpu.name, cpu.num_cores, cpu.memory_bytes) == ("Intel Xeon", 2, GB)
    assert cpu.flags == ("avx2", "avx512f", "avx512_vnni", "amx_int8")


def test_an_arm_cpu_has_its_features():
    cpu = described_cpu(cpuinfo="Features\t: fp asimddp i8mm\n", num_cores=4, memory_bytes=GB)

    assert (cpu.name, cpu.flags) == ("unknown CPU", ("asimddp", "i8mm"))


def test_several_gpus_are_as_strong_as_the_weakest_of_them():
    strong = Card("NVIDIA H100", 80 * GB, (9, 0))
    weak = Card("NVIDIA T4", 16 * GB, (7, 5))

    found = described_gpus(FakeNvml([strong, strong, weak]), CPU)

    assert found == Device(
        kind="cuda",
        name="NVIDIA H100 + NVIDIA T4",
        num_devices=3,
        num_cores=CPU.num_cores,
        memory_bytes=16 * GB,
        compute_capability=(7, 5),
        flags=CPU.flags,
    )


@pytest.mark.parametrize("cards", [None, []])
def test_a_machine_without_driver_or_cards_has_no_gpu(cards):
    assert described_gpus(FakeNvml(cards), CPU) is None


def test_the_driver_is_let_go():
    nvml = FakeNvml([Card("NVIDIA L4", 24 * GB, (8, 9))])

    described_gpus(nvml, CPU)

    assert not nvml.is_connected


def test_this_machine_has_a_name_cores_and_memory():
    device = devices.describe()

    assert device.name
    assert device.num_cores >= 1
    assert device.memory_bytes > GB // 2


@pytest.mark.parametrize("version", [1, 2])
def test_a_containers_memory_limit_is_the_memory(tmp_path, monkeypatch, version):
    place = {1: "memory/memory.limit_in_bytes", 2: "memory.max"}[version]
    (tmp_path / place).parent.mkdir(exist_ok=True)
    (tmp_path / place).write_text(f"{GB}\n")
    monkeypatch.setattr(devices, "_CGROUP", tmp_path)

    device = devices.describe()

    assert device.kind == "cuda" or device.memory_bytes == GB


def test_a_containers_cpu_quota_limits_the_cores(tmp_path, monkeypatch):
    (tmp_path / "cpu.max").write_text("100000 100000\n")
    monkeypatch.setattr(devices, "_CGROUP", tmp_path)

    assert devices.describe().num_cores == 1


@pytest.mark.parametrize("limits", ["max 100000\n", ""])
def test_no_quota_leaves_the_cores_as_they_are(tmp_path: Path, monkeypatch, limits):
    (tmp_path / "cpu.max").write_text(limits)
    unlimited = devices.describe().num_cores
    monkeypatch.setattr(devices, "_CGROUP", tmp_path)

    assert devices.describe().num_cores >= unlimited


# Which weights fit


@pytest.mark.parametrize("capability", [(7, 5), (8, 0), (8, 9), (9, 0)])
@pytest.mark.parametrize("weights", ["int8", "int4", "bf16", "as_is"])
def test_turing_to_hopper_run_every_kind_of_weights(capability, weights):
    check_weights_fit(gpu(capability), weights, num_weight_bytes=10 * GB)


@pytest.mark.parametrize("capability", [(10, 0), (10, 3), (12, 0)])
def test_int8_on_blackwell_is_refused_and_fp8_named(capability):
    with pytest.raises(SettingsError, match=r"no kernel on .*use bf16, or an FP8 checkpoint"):
        check_weights_fit(gpu(capability), "int8")


@pytest.mark.parametrize("weights", ["bf16", "int4", "as_is"])
def test_blackwell_runs_the_others(weights):
    check_weights_fit(gpu((10, 0)), weights)


@pytest.mark.parametrize("weights", ["int8", "int4"])
def test_quantized_weights_before_turing_are_refused(weights):
    with pytest.raises(SettingsError, match=r"vLLM's begin at 7\.5; use bf16"):
        check_weights_fit(gpu((7, 0)), weights)


def test_int4_on_a_cpu_without_avx512_is_refused():
    old = dataclasses.replace(CPU, flags=("avx2",))

    check_weights_fit(old, "int8")
    with pytest.raises(SettingsError, match=re.escape("needs AVX-512, found avx2; use int8")):
        check_weights_fit(old, "int4")


@pytest.mark.parametrize("device", [CPU, gpu((9, 0), memory_bytes=64 * GB)])
def test_weights_that_leave_no_room_in_memory_are_refused(device):
    check_weights_fit(device, "bf16", num_weight_bytes=57 * GB)
    with pytest.raises(SettingsError, match=r"takes 58\.0 GB, .* has room for 57\.6 GB"):
        check_weights_fit(device, "bf16", num_weight_bytes=58 * GB)
