package main

import (
	"strings"

	"github.com/spf13/cobra"
)

// newHelp is cobra's help command, but a topic that does not exist is a usage
// error.
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

// helpTopics are texts that "drun help TOPIC" prints.
func helpTopics() []*cobra.Command {
	return []*cobra.Command{{
		Use:   "memory",
		Short: "How much memory a recipe may take",
		Long: `Memory:

  The ranks of a machine share its memory, or that of their control group, less a
  tenth: each may take an equal part for tensors. Plain values (lists, strings,
  integers) of a rank may take a quarter of that part together, and one value half
  of this quarter.

  What one call would make beyond that, such as list(range(1 << 40)), is an error at
  its line before it takes any memory; so are files that data.text, data.bytes and
  data.csv would read, also packed ones. data.npy, npz, idx and safetensors read into
  tensors' memory.`,
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
  130  interrupted`,
	}, {
		Use:   "environment",
		Short: "Environment variables that drun reads",
		Long: `Environment:

  DRUN_HOME            folder of the history and checkpoints, default .drun; --home wins
  DRUN_BACKEND         backend of collectives; --backend wins
  TORCH_DISTRIBUTED_BACKEND  the same, after DRUN_BACKEND
  DRUN_PLUGIN_PATH     folders of plugins, with colons between them; --plugin-dir comes first
  PATH                 where plugins are looked for last
  DRUN_KERNEL          forces a path of the kernels: portable, avx2, avx512 or neon
  NO_COLOR             when set, no colours and no progress bars
  TERM, XDG_CONFIG_HOME, HOME  as everywhere
  GOGC                 of Go's collector, in workers

Several processes (docs/nodes.md); flags win:

  DRUN_RDZV_SECRET     the secret that the processes of a run prove to each other
  RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT  this process is one rank, as torchrun starts it;
  LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK, GROUP_WORLD_SIZE  where they are set
  PET_NNODES, PET_NODE_RANK, PET_NPROC_PER_NODE, PET_MASTER_ADDR, PET_MASTER_PORT,
  PET_RDZV_ENDPOINT    this process is one node, as PyTorchJob tells torchrun
  JOB_COMPLETION_INDEX  of Kubernetes' indexed jobs: the rank, with WORLD_SIZE
  OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE, OMPI_COMM_WORLD_LOCAL_RANK,
  OMPI_COMM_WORLD_LOCAL_SIZE, OMPI_COMM_WORLD_NODE_RANK, OMPI_MCA_ess_base_jobid,
  OMPI_MCA_orte_hnp_uri, PMIX_NAMESPACE  of Open MPI's mpirun
  PMI_RANK, PMI_SIZE, PMI_JOBID, PMI_PORT, HYDI_CONTROL_FD, MPI_LOCALRANKID,
  MPI_LOCALNRANKS      of MPICH's mpiexec and others that speak PMI
  SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_LOCALID, SLURM_NODEID, SLURM_JOB_ID,
  SLURM_STEP_ID, SLURM_STEP_NODELIST, SLURM_JOB_NODELIST  of Slurm's srun

Backends:

  DRUN_GLOO_INTERFACE  network interface of gloo; GLOO_SOCKET_IFNAME after it
  DRUN_NCCL_LIB, DRUN_CUDA_LIB  the libraries of nccl; else they are looked for, also in
  CONDA_PREFIX, VIRTUAL_ENV  and CUDA_VISIBLE_DEVICES counts
  DRUN_NCCL_DEVICES    numbers of the GPUs that nccl uses, as in 0,1
  DRUN_NCCL_SHARE_GPU  1: ranks may share a GPU
  DRUN_NCCL_ZERO_COPY  1: GPUs work on drun's memory, without a copy

Set by drun, for workers and plugins: the first two lines of several processes, and
  DRUN_RUN_ID, DRUN_RESTART_COUNT, DRUN_NODE_ADDRESS, DRUN_DETERMINISTIC, DRUN_BACKEND_PLUGIN`,
	}}
}
