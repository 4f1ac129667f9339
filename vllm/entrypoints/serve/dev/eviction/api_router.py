# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
"""`/eviction`: what the eviction policy does, and the operator's hand on it.

Part of the server's development mode (`VLLM_SERVER_DEV_MODE=1`), like upstream's
`/reset_prefix_cache`: whoever reaches it steers the cache of all users.
"""

from typing import Any

import msgspec
from fastapi import APIRouter, FastAPI, HTTPException, Request
from fastapi.responses import JSONResponse

router = APIRouter()


async def _control(raw_request: Request, command: dict[str, Any]) -> JSONResponse:
    """Ask every engine core; one entry for each data-parallel rank."""
    core = raw_request.app.state.engine_client.engine_core
    answers = await core.call_utility_all_async("eviction_control", command)
    for rank, answer in enumerate(answers):
        if error := answer.get("error"):
            where = f"Engine {rank}: " if len(answers) > 1 else ""
            raise HTTPException(status_code=400, detail=where + error)
    return JSONResponse(content={"engines": answers})


@router.get("/eviction")
async def show(raw_request: Request) -> JSONResponse:
    """Live policy, candidates, windows and the last decisions."""
    return await _control(raw_request, {"action": "status"})


@router.post("/eviction")
async def control(raw_request: Request) -> JSONResponse:
    """Pin a policy, let go again, or put LRU back.

    The body is `{"action": "pin", "policy": NAME}`, `{"action": "release"}` or
    `{"action": "kill"}`: LRU order from now on, until the engine restarts.
    """
    try:
        body = await raw_request.json()
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise HTTPException(
            status_code=400,
            detail='The body must be a JSON object, such as {"action": "release"}.',
        )
    command = {key: body[key] for key in ("action", "policy") if key in body}
    try:  # as it is sent to the engine cores, which cannot say all that JSON can
        msgspec.msgpack.encode(command)
    except (ValueError, OverflowError, RecursionError):
        raise HTTPException(
            status_code=400, detail="`action` and `policy` must be names."
        ) from None
    return await _control(raw_request, command)


def attach_router(app: FastAPI) -> None:
    app.include_router(router)
