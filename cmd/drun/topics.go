package main

import (
	"strings"

	"github.com/spf13/cobra"
)

// newHelp is cobra's help command, except that an unknown topic is a usage error.
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND or TOPIC]",
		Short: "Help about a command or topic",
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return usage("see: drun help", "there is no help on %q", strings.Join(args, " "))
			}
			return about.Help()
		},
	}
}

func helpTopics() []*cobra.Command {
	return []*cobra.Command{{
		Use:   "memory",
		Short: "How much memory a recipe may use",
		Long: `Memory:

  The ranks of a machine share nine tenths of its memory, or of their control group's
  limit, in equal parts. Everything that a rank holds counts. A rank that uses more than its
  share ends with an error at its current line, and its run with it.

  A size that is known in advance, as in list(range(1 << 40)), is an error at its line
  before memory is allocated. docs/threats.md says more.`,
	}, {
		Use:   "exit-codes",
		Short: "What drun's exit codes mean",
		Long: `Exit codes:

    0  done
    1  the recipe failed
    2  usage: a wrong flag, argument, name, parameter or query
    3  a rank was killed or lost
    4  a collective timed out
    5  ranks disagreed (mismatch)
    6  a backend or plugin failed
    7  storage failed: the history or checkpoints cannot be read or written
    8  a requirement was missed (run.require, run.watch_nan)
  130  interrupted`,
	}, {
		Use:   "environment",
		Short: "Environment variables that drun reads",
		Long: `Environment:

  DRUN_HOME            folder of the history and checkpoints, default .drun; --home overrides it
  DRUN_BACKEND         backend of the collectives; --backend overrides it
  TORCH_DISTRIBUTED_BACKEND  the same, after DRUN_BACKEND
  DRUN_SERVER          the team's server that runs follow to; --server overrides it
  DRUN_TOKEN           the token for a team's server (docs/team.md)
  DRUN_PROJECT         the project of a team that runs belong to; --project overrides it
  DRUN_PLUGIN_PATH     folders of plugins, separated by colons; --plugin-dir comes first
  PATH                 where plugins are looked for last
  DRUN_KERNEL          forces one form of the kernels: scalar, avx2, avx512, avx512bf16, amx or neon
  DRUN_PLAN            off: memory of tensors that are no longer used is not kept for the next ones
  DRUN_TARGETS         the file of the targets of drun submit
  AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, AWS_REGION, AWS_DEFAULT_REGION  where the bucket of drun serve --artifacts is
  NO_COLOR             when set, no colours and no progress bars
  TERM, XDG_CONFIG_HOME, XDG_STATE_HOME, HOME  with their usual meaning
  GOGC                 Go's garbage collector, in workers

Several processes (docs/nodes.md); flags override these:

  DRUN_RDZV_SECRET     the secret that the processes of a run share
  DRUN_SSH             the command in place of ssh, for --hosts, drun push, pull and submit
  RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT  this process is one rank, as torchrun starts it;
  LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK, GROUP_WORLD_SIZE  optional, with the above
  PET_NNODES, PET_NODE_RANK, PET_NPROC_PER_NODE, PET_MASTER_ADDR, PET_MASTER_PORT,
  PET_RDZV_ENDPOINT, PET_RDZV_BACKEND, PET_RDZV_ID, PET_MAX_RESTARTS  this process is one node, as
                       PyTorchJob tells torchrun
  JOB_COMPLETION_INDEX  in an indexed job of Kubernetes: the rank, with WORLD_SIZE; else the node
  KUBERNETES_SERVICE_HOST  when set, node 0 waits until the name of its pod is known
  OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE, OMPI_COMM_WORLD_LOCAL_RANK,
  OMPI_COMM_WORLD_LOCAL_SIZE, OMPI_COMM_WORLD_NODE_RANK, OMPI_MCA_ess_base_jobid,
  OMPI_MCA_orte_hnp_uri, PMIX_NAMESPACE, PMIX_RANK  set by Open MPI's mpirun
  PMI_RANK, PMI_SIZE, PMI_JOBID, PMI_PORT, HYDI_CONTROL_FD, MPI_LOCALRANKID,
  MPI_LOCALNRANKS      set by MPICH's mpiexec and other launchers that speak PMI
  SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_STEP_NUM_NODES, SLURM_LOCALID, SLURM_NODEID,
  SLURM_JOB_ID, SLURM_STEP_ID, SLURM_STEP_NODELIST, SLURM_JOB_NODELIST  set by Slurm's srun
  SLURM_JOB_NUM_NODES  tells whether a run without srun leaves nodes of its job unused
  SLURM_ARRAY_JOB_ID, SLURM_ARRAY_TASK_ID, PBS_JOBID, PBS_ARRAY_INDEX, LSB_JOBID,
  LSB_JOBINDEX, LSB_MCPU_HOSTS  labels of the run, with SLURM_JOB_ID and SLURM_JOB_NODELIST

Backends:

  DRUN_HIERARCHY       off: the backend carries all collectives, even within the nodes;
                       a number: that many ranks of each node are connected to other nodes (default 4)
  DRUN_GLOO_INTERFACE  network interface of gloo; GLOO_SOCKET_IFNAME after it
  DRUN_OPENCL_LIB               the library of OpenCL, for --device opencl (default: libOpenCL.so.1)
  DRUN_NCCL_LIB, DRUN_CUDA_LIB  where nccl's libraries are; unset, drun searches for them, also in
  CONDA_PREFIX, VIRTUAL_ENV
  CUDA_VISIBLE_DEVICES  the GPUs that nccl sees
  DRUN_NCCL_DEVICES    numbers of the GPUs that nccl uses, as in 0,1
  DRUN_NCCL_SHARE_GPU  1: ranks may share a GPU
  DRUN_NCCL_ZERO_COPY  1: GPUs read and write drun's memory directly

Set by drun for workers and plugins: RANK and the variables on its two lines, and
  DRUN_RUN_ID, DRUN_RESTART_COUNT, DRUN_BACKEND_PLUGIN; for the runs of jobs: DRUN_JOB, DRUN_JOB_CELL`,
	}}
}
