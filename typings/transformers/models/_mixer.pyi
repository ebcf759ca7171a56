from torch import Tensor, nn

# Stubs only: what the mixers of two families each have in common. At run time they share no base.

class _Norm(nn.Module):
    weight: Tensor

    def __call__(self, hidden_states: Tensor) -> Tensor: ...

class _GatedNorm(nn.Module):
    weight: nn.Parameter

    def __call__(self, hidden_states: Tensor, gate: Tensor | None = None) -> Tensor: ...

class _MambaMixer(nn.Module):
    A_log: nn.Parameter
    D: nn.Parameter
    b_layernorm: _Norm
    c_layernorm: _Norm
    conv1d: nn.Conv1d
    conv_kernel_size: int
    dt_layernorm: _Norm
    dt_proj: nn.Linear
    in_proj: nn.Linear
    intermediate_size: int
    out_proj: nn.Linear
    ssm_state_size: int
    time_step_rank: int
    x_proj: nn.Linear

class _Mamba2Mixer(nn.Module):
    A_log: nn.Parameter
    D: nn.Parameter
    chunk_size: int
    conv1d: nn.Conv1d
    conv_kernel_size: int
    dt_bias: nn.Parameter
    head_dim: int
    hidden_size: int
    in_proj: nn.Linear
    n_groups: int
    norm: _GatedNorm
    num_heads: int
    out_proj: nn.Linear
    ssm_state_size: int
    time_step_limit: tuple[float, float] | None
