"""Who is in a cluster, by the variables of launchers as they set them."""

import pytest

from train import UserError
from train.devices.cluster import Cluster, find_cluster
from train.settings.schema import Distributed

JAX = {"JAX_COORDINATOR_ADDRESS": "host:1", "JAX_NUM_PROCESSES": "4", "JAX_PROCESS_ID": "3"}
SLURM = {
    "SLURM_JOB_ID": "4097",
    "SLURM_STEP_ID": "2",
    "SLURM_STEP_NODELIST": "node[007-008,11],other",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_TASKS_PER_NODE": "1(x4)",
    "SLURM_PROCID": "2",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "2",
    "SLURM_GPUS_ON_NODE": "8",
}
MPI = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
MPI |= {"OMPI_COMM_WORLD_LOCAL_RANK": "1"}
TORCHRUN = {"MASTER_ADDR": "head", "MASTER_PORT": "29500", "WORLD_SIZE": "16", "RANK": "9"}
TORCHRUN |= {"LOCAL_WORLD_SIZE": "8", "LOCAL_RANK": "1"}
XPK = {"JAX_COORDINATOR_IP": "10.0.0.1", "JAX_COORDINATOR_PORT": "1234", "NNODES": "2", "NODE_RANK": "1"}
TPU = {"TPU_WORKER_HOSTNAMES": "a,b,c,d"}


@pytest.mark.parametrize(
    ("options", "environ", "expected"),
    [
        ({}, {}, None),
        ({"coordinator": "host:1", "processes": 2, "process": 1}, {}, ("host:1", 2, 1, None)),
        ({}, JAX, ("host:1", 4, 3, None)),
        ({"process": 0}, JAX, ("host:1", 4, 0, None)),
        ({}, SLURM, ("node007:61443", 4, 2, None)),
        ({}, SLURM | {"SLURM_STEP_NODELIST": "one,two"}, ("one:61443", 4, 2, None)),
        ({}, {"SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"}, None),
        ({"processes": 1}, SLURM, None),
        ({"coordinator": "host:1"}, SLURM, ("host:1", 4, 2, None)),
        ({"coordinator": "auto"}, SLURM, (None, 4, None, None)),
        ({}, MPI | {"OMPI_MCA_orte_hnp_uri": "1.0;tcp://10.0.0.1:1"}, (None, 2, None, (1,))),
        ({"coordinator": "host:1"}, MPI, ("host:1", 2, 1, (1,))),
        ({}, TORCHRUN, ("head:29501", 16, 9, (1,))),
        ({}, XPK, ("10.0.0.1:1234", 2, 1, None)),
        ({}, TPU, (None, 4, None, None)),
        ({}, TPU | {"MEGASCALE_NUM_SLICES": "2"}, (None, 8, None, None)),
        ({}, {"TPU_WORKER_HOSTNAMES": "localhost", "MEGASCALE_NUM_SLICES": "2"}, (None, 2, None, None)),
        ({}, {"TPU_PROCESS_ADDRESSES": "a:1,b:1"}, (None, 2, None, None)),
        ({}, {"TPU_WORKER_HOSTNAMES": "localhost"}, None),
        ({}, {"NNODES": "2", "WORLD_SIZE": "4"}, None),
        ({"coordinator": "auto"}, {}, (None, None, None, None)),
    ],
)
def test_where_processes_meet(options, environ, expected):
    assert find_cluster(Distributed(**options), environ) == expected


@pytest.mark.parametrize(
    ("tasks", "index", "environ", "expected"),
    [
        ("1(x4)", 0, {}, None),
        ("8(x4)", 3, {}, (3,)),
        ("2(x2),4(x2)", 3, {}, (6, 7)),
        ("2(x4)", 1, {}, (4, 5, 6, 7)),
        ("2(x4)", 1, {"CUDA_VISIBLE_DEVICES": "4,5,6,7"}, (2, 3)),
        ("8(x4)", 3, {"CUDA_VISIBLE_DEVICES": "3"}, None),
    ],
)
def test_the_gpus_of_a_process_are_its_share_of_those_of_the_host(tasks, index, environ, expected):
    """All eight where one process runs on a host, as the guide to SLURM has it."""
    environ = SLURM | {"SLURM_STEP_TASKS_PER_NODE": tasks, "SLURM_LOCALID": str(index)} | environ
    cluster = find_cluster(Distributed(), environ)
    assert isinstance(cluster, Cluster)
    assert cluster.local_devices == expected


@pytest.mark.parametrize(
    ("options", "environ", "message"),
    [
        ({"coordinator": "host", "processes": 2, "process": 0}, {}, "coordinator=host must be host:port"),
        ({"processes": 2, "process": 0}, {}, "coordinator= must be host:port"),
        (
            {"coordinator": "host:1", "processes": 2},
            {},
            "process=none must be the number of this process, from 0 to less than",
        ),
        ({"coordinator": "host:1", "processes": 2, "process": 2}, {}, "process=2 must be"),
        ({}, MPI, "Open MPI started 2 processes and does not say where they meet; add --distributed.coordinator="),
        ({}, {"PMI_SIZE": "2", "PMI_RANK": "0"}, "MPI started 2 processes"),
        ({}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "JOB_COMPLETION_INDEX": "0"}, "this is pod 0 of a job"),
    ],
)
def test_half_of_a_meeting(options, environ, message, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=message):
        find_cluster(Distributed(**options), environ)
