"""Turns off what libraries report to others by themselves, whatever the environment says.

Every process of Peergate does so as it imports ``specs``, before any of these libraries; jobs and what they start get
the same variables. What a user asks for by name, such as ``trackers: [wandb]``, is a part of Peergate.
"""

from __future__ import annotations

import os

REPORTING_OFF = {
    # Every node of a LangGraph graph with its state.
    "LANGSMITH_TRACING": "false",
    "LANGSMITH_TRACING_V2": "false",
    "LANGCHAIN_TRACING": "false",
    "LANGCHAIN_TRACING_V2": "false",
    "LANGSMITH_OTEL_ENABLED": "false",
    "LANGCHAIN_OTEL_ENABLED": "false",
    # Hugging Face's hub, transformers, TRL (the name of every trainer), datasets, vLLM, MLflow and others.
    "DO_NOT_TRACK": "1",
    "DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_UPDATE_DOWNLOAD_COUNTS": "0",
    # OpenTelemetry of any library: the anthropic SDK, torchft, mcp.
    "OTEL_SDK_DISABLED": "true",
    "ANTHROPIC_OPEN_TELEMETRY": "false",
    "TORCHFT_USE_OTEL": "false",
    # Trackers that transformers' `report_to` and scripts begin where they are installed.
    "WANDB_MODE": "disabled",
    "WANDB_ERROR_REPORTING": "false",
    "COMET_MODE": "DISABLED",
    "CLEARML_OFFLINE_MODE": "1",
    "NEPTUNE_MODE": "debug",
    "SWANLAB_MODE": "disabled",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "GRADIO_ANALYTICS_ENABLED": "False",
    # Usage statistics of launchers, engines and trainers.
    "RAY_USAGE_STATS_ENABLED": "0",
    "SKYPILOT_DISABLE_USAGE_COLLECTION": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "AXOLOTL_DO_NOT_TRACK": "1",
    "UNSLOTH_DISABLE_STATISTICS": "1",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
}


def turn_off_reporting() -> None:
    """Set the variables for this process and what it starts."""
    os.environ.update(REPORTING_OFF)
