"""The supported structured text formats, one module each."""

from __future__ import annotations

from gpudoctor.evidence.reader import Reader
from gpudoctor.evidence.readers import (
    bug_report,
    collect_env,
    device_nodes,
    dkms,
    engine,
    lspci,
    nccl_log,
    nvidia_smi_csv,
    nvidia_smi_lists,
    nvidia_smi_q,
    nvidia_smi_table,
    nvidia_smi_topology,
    nvidia_smi_xml,
    os_packages,
    program_versions,
    programs,
    python_packages,
    system_texts,
)

READERS: tuple[Reader, ...] = (
    *system_texts.READERS,
    lspci.READER,
    device_nodes.READER,
    os_packages.READER,
    python_packages.READER,
    *dkms.READERS,
    collect_env.READER,
    engine.READER,
    nvidia_smi_lists.READER,
    nvidia_smi_table.READER,
    nvidia_smi_csv.READER,
    nvidia_smi_topology.READER,
    nvidia_smi_q.READER,
    nvidia_smi_xml.READER,
    nccl_log.READER,
    bug_report.READER,
    *program_versions.READERS,
    *programs.READERS,
)
