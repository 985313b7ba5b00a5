# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# A Slurm of one node for tests, with keys, sockets, ports and files of its own in a folder, so that
# it neither needs nor disturbs one of the system. To be sourced.
#     start_slurm FOLDER: exports SLURM_CONF; false where it cannot run, with the reason in $why
#     stop_slurm

slurm_processes=()
export why=''

# Two ports that nobody listens at.
slurm_ports() {
    local port found=()
    while [ ${#found[@]} -lt 2 ]; do
        port=$((20000 + RANDOM % 20000))
        grep -qi ":$(printf %04x $port) " /proc/net/tcp || found+=("$port")
    done
    echo "${found[@]}"
}

slurm_answers() {
    [ "$(sinfo -h -o %T 2>/dev/null)" = idle ]
}

start_slurm() {
    local folder=$1 tool port ports host cores
    for tool in munged mungekey slurmctld slurmd srun sbatch scontrol scancel; do
        command -v $tool >/dev/null || { why="no $tool (Debian: slurm-wlm, munge)"; return 1; }
    done
    [ "$(id -u)" = 0 ] || { why="slurmd wants root"; return 1; }
    host=$(hostname -s) cores=$(nproc)
    read -r -a ports <<<"$(slurm_ports)"
    mkdir -p "$folder"/{state,spool,munge} && chmod 700 "$folder/munge"
    mungekey -c -k "$folder/munge/key" || { why="mungekey fails"; return 1; }
    # A job that is queued again waits until its credentials have expired.
    cat >"$folder/slurm.conf" <<Y
ClusterName=echelon-test
SlurmctldHost=$host(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge/socket,cred_expire=10
CryptoType=crypto/munge
SlurmctldPort=${ports[0]}
SlurmdPort=${ports[1]}
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=pmix
ReturnToService=2
SchedulerType=sched/builtin
SelectType=select/cons_tres
KillWait=20
MinJobAge=300
InactiveLimit=0
SchedulerParameters=batch_sched_delay=0,sched_interval=1,requeue_delay=0
NodeName=$host NodeAddr=127.0.0.1 CPUs=$((cores > 4 ? cores : 4)) State=UNKNOWN
PartitionName=test Nodes=$host Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
Y
    export SLURM_CONF=$folder/slurm.conf
    munged -F --force --key-file="$folder/munge/key" --socket="$folder/munge/socket" \
        --pid-file="$folder/munge/pid" --seed-file="$folder/munge/seed" \
        --log-file="$folder/munge/log" --num-threads=2 2>"$folder/munged.err" &
    slurm_processes+=($!)
    wait_until 10 test -S "$folder/munge/socket" || { why="munged does not start"; return 1; }
    slurmctld -D -i >/dev/null 2>"$folder/slurmctld.err" &
    slurm_processes+=($!)
    slurmd -D >/dev/null 2>"$folder/slurmd.err" &
    slurm_processes+=($!)
    wait_until 30 slurm_answers ||
        { why="Slurm does not start: $(tail -q -n 1 "$folder"/slurm*.log "$folder"/*.err)"; return \
            1; }
}

stop_slurm() {
    local process i
    scancel --quiet --user=root 2>/dev/null
    for ((i = ${#slurm_processes[@]} - 1; i >= 0; i--)); do
        process=${slurm_processes[i]}
        kill "$process" 2>/dev/null
        wait_until 10 eval "! kill -0 $process 2>/dev/null" || kill -9 "$process"
        wait "$process" 2>/dev/null
    done
}
