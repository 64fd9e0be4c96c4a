"""Server reflection, which describes the services to callers without .proto files."""

from __future__ import annotations

from collections.abc import Sequence

import grpc
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health, health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2


def add_reflection(server: grpc.aio.Server, services: Sequence[str], files: Sequence[FileDescriptor]) -> None:
    """Describe the services that the files define, health, and reflection itself."""
    names = (*services, health.SERVICE_NAME, reflection.SERVICE_NAME)
    pool = _pool_of((*files, health_pb2.DESCRIPTOR, reflection_pb2.DESCRIPTOR))
    reflection.enable_server_reflection(names, server, pool)


def _pool_of(files: Sequence[FileDescriptor]) -> DescriptorPool:
    """One pool with these files and all their imports."""
    pool = DescriptorPool()
    known: set[str] = set()

    def add(file: FileDescriptor) -> None:
        if file.name not in known:
            known.add(file.name)
            for other in file.dependencies:
                add(other)
            pool.AddSerializedFile(file.serialized_pb)

    for file in files:
        add(file)
    return pool
