import pytest

from pipelines.engines.model_size import kv_values_per_token, model_size
from tests.pipelines.engines.chosen_settings import SMOLLM2, model_folder


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (SMOLLM2, 11_520),
        ({"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 64}, 2 * 2 * 4 * 16),
        ({**SMOLLM2, "kv_lora_rank": 512}, None),
        ({"model_type": "unheard of"}, None),
    ],
    ids=["grouped heads", "all heads", "latent attention", "unknown"],
)
def test_the_kv_values_of_a_token_follow_from_the_models_shape(config, expected):
    assert kv_values_per_token(config) == expected


def test_an_int8_file_has_as_many_weights_as_bytes(tmp_path):
    size = model_size(model_folder(tmp_path, SMOLLM2, weight_bytes=163_000_000))

    assert (size.num_weights, size.is_int8) == (163_000_000, True)
