from pathlib import Path

import pytest

from pipelines.engines.environment import child_environment, find_preloads
from tests.pipelines.engines.chosen_settings import some_settings


@pytest.fixture
def root(tmp_path):
    for place in ("usr/lib/x86_64-linux-gnu", "venv/lib"):
        (tmp_path / place).mkdir(parents=True)
    return tmp_path


def test_the_child_is_kept_off_the_network_and_listens_on_the_loopback_only():
    environment = child_environment({"PATH": "/bin", "VLLM_HOST_IP": "0.0.0.0"}, some_settings())

    assert environment["PATH"] == "/bin"
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "VLLM_NO_USAGE_STATS", "DO_NOT_TRACK"):
        assert environment[name] == "1"
    assert environment["VLLM_HOST_IP"] == "127.0.0.1"


@pytest.mark.parametrize(
    "name",
    [
        "VLLM_ALLOW_INSECURE_SERIALIZATION",
        "VLLM_SERVER_DEV_MODE",
        "VLLM_CPU_KVCACHE_SPACE",
        "AWS_SECRET_ACCESS_KEY",
        "AZURE_STORAGE_KEY",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "HF_TOKEN",
    ],
)
def test_the_child_never_sees_a_denied_variable_or_a_secret_of_the_storage(name):
    assert name not in child_environment({name: "1"}, some_settings())


def test_all_cores_of_a_cpu_compute():
    assert child_environment({}, some_settings())["OMP_NUM_THREADS"] == "3"


def test_int8_is_multiplied_as_floats_where_its_sums_would_overflow():
    """oneDNN's AVX2 product saturates at 16 bits: layers were off by up to 2 %."""
    without_vnni = child_environment({}, some_settings(flags=("avx2", "avx512f")))

    assert "CPUInt8ScaledMMLinearKernel" in without_vnni["VLLM_DISABLED_KERNELS"]


@pytest.mark.parametrize("flags", [("avx2", "avx_vnni"), ("avx512_vnni",), ("asimddp",), None])
def test_int8_stays_int8_on_any_other_cpu(flags):
    assert "VLLM_DISABLED_KERNELS" not in child_environment({}, some_settings(flags=flags))


def test_a_gpus_threads_are_left_alone():
    assert "OMP_NUM_THREADS" not in child_environment({}, some_settings("cuda"))


def test_libraries_are_preloaded_before_those_that_were_already():
    preloads = (Path("/lib/a.so"), Path("/lib/b.so"))

    environment = child_environment({"LD_PRELOAD": "/lib/old.so"}, some_settings(), preloads)

    assert environment["LD_PRELOAD"] == "/lib/a.so:/lib/b.so:/lib/old.so"


def test_both_libraries_are_found_where_debian_and_pip_put_them(root):
    tcmalloc = root / "usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4"
    iomp = root / "venv/lib/libiomp5.so"
    tcmalloc.touch()
    iomp.touch()

    assert find_preloads(root, root / "venv", "x86_64") == ((tcmalloc, iomp), ())


def test_a_missing_library_is_named_with_the_package_that_has_it(root):
    found, missing = find_preloads(root, root / "venv", "x86_64")

    assert found == ()
    assert "apt-get install libtcmalloc-minimal4" in missing[0]
    assert "pip install intel-openmp" in missing[1]


def test_intels_library_is_not_missed_on_arm(root):
    _, missing = find_preloads(root, root / "venv", "aarch64")

    assert len(missing) == 1
