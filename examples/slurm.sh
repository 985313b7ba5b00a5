#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Trains under Slurm until all steps are done, through as many time limits, preemptions and failures
# as it takes:   sbatch examples/slurm.sh RUN.yaml [section.key=value ...]
#
# 120 s before the time limit, and at `scontrol requeue` and preemption (SIGTERM; KillWait or
# GraceTime should be as long as a step and a save take), ranks finish the step, save, and exit with
# 75. Then the job goes back into the queue and goes on from the newest checkpoint. `scancel
# --signal=USR1 JOBID` saves and goes on; `scancel JOBID` saves, if KillWait is long enough, and
# ends.
#SBATCH --job-name=echelon
#SBATCH --nodes=1
#SBATCH --ntasks=2
#SBATCH --time=24:00:00
#SBATCH --signal=USR2@120
#SBATCH --requeue
#SBATCH --open-mode=append
#
# On GPUs, one process each: --ntasks-per-node=8 and --gpus-per-node=8, or --gpus-per-task=1, which
# shows each process its own card as GPU 0; and parallel.device=cuda parallel.comm=nccl.
set -u
run_file=${1:?usage: sbatch examples/slurm.sh RUN.yaml [section.key=value ...]}
shift
most_failures=${ECHELON_FAILURES:-3} # of the job in all; then it ends

# srun --mpi=list shows what your Slurm has; a wrong one starts lone ranks, which echelon refuses.
# Ranks end the job by themselves when one fails; --kill-on-bad-exit would kill, at a stop, those
# that are about to exit after rank 0 has done so with 75.
srun --mpi=pmix --kill-on-bad-exit=0 "${ECHELON:-echelon}" train "$run_file" "$@"
code=$?

case $code in
    0) exit 0 ;;  # all steps are done
    2) exit 2 ;;  # wrong usage or run file: again would be the same
    75) ;;        # saved and stopped: go on
    *)            # a failure; restarts count requeues of both kinds
        echo "slurm.sh: exit code $code; restart ${SLURM_RESTART_COUNT:-0}" >&2
        failures=$(($(cat "echelon-$SLURM_JOB_ID.failures" 2> /dev/null || echo 0) + 1))
        echo "$failures" > "echelon-$SLURM_JOB_ID.failures"
        [ "$failures" -le "$most_failures" ] || exit "$code"
        ;;
esac
scontrol requeue "$SLURM_JOB_ID"
