"""Builds the engine requests of one call."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from ramet.grammars.constraints import Constraint
from ramet.runtime.api.errors import InvalidParameterError
from ramet.runtime.api.params import SamplingParams
from ramet.runtime.api.request import ProgramHint, Request
from ramet.runtime.engine.sampling_defaults import SamplingDefaults
from ramet.runtime.server.calls.tenants import Tenant
from ramet.runtime.server.protocol.sampling import CommonSampling
from ramet.runtime.server.protocol.shared_fields import EngineFields

_NUM_SEEDS = 2**64


def build_requests(
    call_id: str,
    body: EngineFields,
    params: SamplingParams,
    prompts: Sequence[tuple[int, ...]],
    constraint: Constraint | None,
    tenant: Tenant,
    *,
    complete: bool | None = False,
) -> list[Request]:
    """Builds a request for each prompt and choice, ordered by prompt.

    ``complete`` is what ``Request.complete`` is where the body doesn't ask for it.

    With a seed, choice ``i`` draws with ``seed + i``: choices differ, and repeat with the call.
    """
    own = body.ramet
    hint = own.hint() if own else None
    if own is not None and own.complete:
        complete = True if own.complete is True else None
    landing = own.landing_share if own else None
    if landing is not None and (complete is False or constraint is None):
        raise InvalidParameterError(
            "ramet.landing needs ramet.complete and a constraint", param="ramet.landing"
        )
    return [
        Request(
            prompt_token_ids=prompt,
            params=_nth_choice(params, choice),
            constraint=constraint,
            complete=complete,
            landing=landing,
            cache_salt=tenant.scoped(body.cache_salt or ""),
            tenant=tenant.name,
            priority=body.priority,
            deadline_s=body.deadline_s,
            ttft_target_s=body.ttft_target_s,
            tpot_target_s=body.tpot_target_s,
            hint=scoped_hint(hint, tenant) if hint else None,
            request_id=f"{tenant.scoped(call_id)}-{index * body.num_choices + choice}",
        )
        for index, prompt in enumerate(prompts)
        for choice in range(body.num_choices)
    ]


def scoped_hint(hint: ProgramHint, tenant: Tenant) -> ProgramHint:
    """Scopes a hint's program names to its tenant."""
    return dataclasses.replace(
        hint,
        program_id=tenant.scoped(hint.program_id),
        program=tenant.scoped(hint.program) if hint.program else "",
    )


def sampling_params(body: CommonSampling, defaults: SamplingDefaults) -> SamplingParams:
    """Converts a body's sampling fields; missing ones have the model's defaults, or the API's."""
    return SamplingParams.from_mapping({**defaults, **body.sampling_values()})


def _nth_choice(params: SamplingParams, choice: int) -> SamplingParams:
    if params.seed is None:
        return params
    return dataclasses.replace(params, seed=(params.seed + choice) % _NUM_SEEDS)


def enforced_headers(constraint: Constraint | None) -> dict[str, str]:
    """Response headers that name the kind of the enforced constraint."""
    return {} if constraint is None else {"x-ramet-enforced": constraint.kind}
