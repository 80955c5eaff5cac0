"""What the meter knows, over HTTP: `/metrics` for Prometheus, `/api/…` for people's tools and the dashboard."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from legato.core.origin import EndReason
from legato.errors import LegatoError
from legato.server.api_error import ApiError, invalid
from legato.server.recorder import running
from legato.server.routes import json_response, service_of
from legato.server.status import status_of, step_of
from legato.telemetry.record import RequestRecord
from legato.telemetry.summary import Cursor, Page, RequestSummary
from legato.telemetry.verdict import verdict

router = APIRouter()

FLUSH_S = 1.0
"""How long a list waits for requests that have just ended to be written."""


@router.get("/metrics")
async def metrics(request: Request) -> Response:
    """Counters, gauges and histograms in Prometheus' format."""
    # In a thread: making the text takes some milliseconds, which no stream should wait.
    body, media_type = await asyncio.to_thread(service_of(request).recorder.metrics.render)
    return Response(body, headers={"content-type": media_type})


@router.get("/api/status")
async def status(request: Request) -> Response:
    """The server at a glance."""
    return json_response(await status_of(service_of(request), request.app.state.utilisation))


@router.get("/api/requests")
async def list_requests(
    request: Request,
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
    before: str | None = None,
    client: str | None = None,
    model: str | None = None,
    end: EndReason | None = None,
    id: str | None = None,  # noqa: A002 - what the API calls it
    slower_than_ms: Annotated[float | None, Query(ge=0)] = None,
) -> Response:
    """Requests that run, and those that have ended, newest first, a page at a time."""
    service = service_of(request)
    recorder, history = service.recorder, service.recorder.history
    beginning = id or ""

    def wanted(record: RequestRecord) -> bool:
        return (
            client in (None, record.client)
            and model in (None, record.model)
            and end in (None, record.end)
            and record.id.startswith(beginning)
            and (slower_than_ms is None or record.timings.total_ms > slower_than_ms)
        )

    if history is not None and history.is_on:
        try:
            place = Cursor.parse(before) if before is not None else None
        except LegatoError as error:
            raise invalid(str(error), "before") from error
        await asyncio.to_thread(history.flush, FLUSH_S)
        page = await asyncio.to_thread(
            history.page,
            before=place,
            limit=limit,
            client=client,
            model=model,
            end=end,
            text=id,
            slower_than_ms=slower_than_ms,
        )
    elif before is not None:
        raise invalid("Without a history the list has a single page; leave 'before' out and raise 'limit'.", "before")
    else:
        page = Page([RequestSummary.of(record) for record in islice(filter(wanted, recorder.latest()), limit)], None)
    cursor = str(page.next) if page.next else None
    live = [one for one in running(service.engine) if client in (None, one.client) and one.id.startswith(beginning)]
    return json_response({"running": live, "requests": page.records, "next": cursor})


@router.get("/api/requests/{request_id}")
async def get_request(request: Request, request_id: str) -> Response:
    """One ended request with its whole timeline, and what its wait was."""
    record = await asyncio.to_thread(service_of(request).recorder.find, request_id)
    if record is None:
        raise ApiError(
            404,
            f"No request {request_id!r} is remembered; /api/requests lists those that are.",
            code="request_not_found",
        )
    return json_response({"request": record, "verdict": verdict(record)})


@router.get("/api/steps")
async def list_steps(
    request: Request,
    after: Annotated[int, Query(ge=0)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> Response:
    """The engine's library calls, oldest first, a page at a time; `after` is the number of the last one seen."""
    recorder = service_of(request).recorder
    calls = recorder.calls(after, limit)
    steps = [step_of(number, call, recorder) for number, call in calls]
    return json_response({"steps": steps, "next": calls[-1][0] if len(calls) == limit else None})
