"""The sizes of a decoder-only transformer that say how much work a token is."""

from dataclasses import dataclass

from schemas.device_limits import DeviceLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """A model of equal layers with full attention, a dense feed-forward part and one lm_head.

    `num_linear_params` are the weights of all layers' matrices, without embeddings and
    lm_head. `weight_bytes` is what one of them takes while the engine runs, `value_bytes` what
    a value of lm_head takes, `kv_value_bytes` one in the KV cache. `is_int8`: the layers
    multiply in INT8; INT8 weights that are multiplied as floats are not that.
    """

    num_linear_params: int
    num_layers: int
    num_q_heads: int
    num_kv_heads: int
    head_dim: int
    hidden_size: int
    vocab_size: int
    weight_bytes: float
    value_bytes: int
    kv_value_bytes: int
    is_int8: bool

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of one token's keys and values in all layers."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * self.kv_value_bytes

    @property
    def linear_bytes(self) -> float:
        """Bytes of the layers' matrices, which every step reads once."""
        return self.num_linear_params * self.weight_bytes

    @property
    def lm_head_bytes(self) -> int:
        """Bytes of lm_head, which a step reads once if anything is sampled in it."""
        return self.hidden_size * self.vocab_size * self.value_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """What a model needs and what a device has: together the least time that work can take."""

    shape: ModelShape
    limits: DeviceLimits
