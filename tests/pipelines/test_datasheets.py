import pytest

from pipelines.datasheets import datasheet_limits


@pytest.mark.parametrize(
    ("name", "int8", "bandwidth"),
    [
        ("NVIDIA H200", 1979e12, 4800e9),
        ("NVIDIA H100 80GB HBM3", 1979e12, 3350e9),
        ("NVIDIA H100 PCIe", 1513e12, 2000e9),
        ("NVIDIA A100-SXM4-80GB", 624e12, 2039e9),
        ("NVIDIA A100-SXM4-40GB", 624e12, 1555e9),
        ("NVIDIA L40S", 733e12, 864e9),
        ("NVIDIA L4", 242e12, 300e9),
        ("Tesla T4", 130e12, 320e9),
    ],
)
def test_a_gpu_is_found_by_the_name_that_its_driver_tells(name, int8, bandwidth):
    limits = datasheet_limits(name)

    assert limits is not None
    assert (limits.int8_ops_per_s, limits.bytes_per_s) == (int8, bandwidth)
    assert "datasheet" in limits.source


@pytest.mark.parametrize("name", ["NVIDIA A10G", "NVIDIA L40", "NVIDIA Unheard-of 9000"])
def test_a_gpu_with_another_name_is_not_taken_for_one_that_sounds_like_it(name):
    assert datasheet_limits(name) is None
