#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# parallel.comm = ucx between two machines, which are network namespaces with names of their own.
# Each has two ranks, which use memory within and TCP between machines. The weights are the same as
# over `local`. When the link is cut, each rank ends by its deadline and names the rank for which it
# waited. When the link is back, the job resumes from its checkpoint. Needs root, ip and unshare.
#     ucx_link.sh ECHELON UCX       ON or OFF: whether the build has it
set -u
echelon=${1:?usage: ucx_link.sh ECHELON UCX} ucx=${2:?usage: ucx_link.sh ECHELON UCX}
# shellcheck source-path=SCRIPTDIR source=scratch.sh
. "$(dirname "$0")/scratch.sh"
# shellcheck source-path=SCRIPTDIR source=expect.sh
. "$(dirname "$0")/expect.sh"
# shellcheck source-path=SCRIPTDIR source=jobs.sh
. "$(dirname "$0")/jobs.sh"
ends=("echelon-$$-a" "echelon-$$-b") devices=("ech$$a" "ech$$b") port=29500 processes=()

unlink_all() {
    [ ${#processes[@]} = 0 ] || kill -9 "${processes[@]}" 2>/dev/null
    ip netns delete "${ends[0]}" 2>/dev/null
    ip netns delete "${ends[1]}" 2>/dev/null
}
link() {
    local i
    for i in 0 1; do ip netns add "${ends[i]}" || return; done
    ip link add "${devices[0]}" netns "${ends[0]}" type veth peer name "${devices[1]}" netns \
        "${ends[1]}" || return
    for i in 0 1; do
        ip -n "${ends[i]}" address add "10.98.0.$((i + 1))/24" dev "${devices[i]}" &&
            ip -n "${ends[i]}" link set lo up && ip -n "${ends[i]}" link set "${devices[i]}" up ||
                return
    done
}

enter ucx_link
trap 'unlink_all; leave' EXIT
export OMP_NUM_THREADS=1
if [ "$ucx" = OFF ]; then
    echo "skipped: this build is without UCX"
    exit 77
fi
if [ "$(id -u)" != 0 ] || ! command -v ip >/dev/null || ! command -v unshare >/dev/null ||
    ! link 2>why; then
    echo "skipped: no network namespaces: they need root, ip and unshare; $(cat why 2>/dev/null)"
    exit 77
fi
make_tokens
keys=(model.hidden_size=32 parallel.pipeline=2 parallel.data=2 checkpoint.every=4)

# A link that has just been made is not up yet, and UCX takes no interface that is down.
is_up() {
    local i
    for i in 0 1; do ip -n "${ends[i]}" link show dev "${devices[i]}" | grep -q "state UP" ||
        return 1; done
}
# begin OPTION ...: four ranks, two at each end.
begin() {
    local r end
    processes=()
    wait_until 30 is_up || complain "the link does not come up"
    for r in 0 1 2 3; do
        end=${ends[r / 2]}
        # shellcheck disable=SC2016
        ip netns exec "$end" unshare --uts sh -c 'hostname "$0" && exec "$@"' "$end" \
            env RANK=$r WORLD_SIZE=4 MASTER_ADDR=10.98.0.1 MASTER_PORT=$port ECHELON_SECRET=same \
                UCX_NET_DEVICES="${devices[r / 2]}" \
            "$echelon" train run.yaml parallel.comm=ucx "$@" >"out.$r" 2>"err.$r" </dev/null &
        processes+=($!)
    done
    port=$((port + 1))
}
have_ended() {
    local process
    for process in "${processes[@]}"; do ! lives "$process" || return 1; done
}
# ended CODE: waits for all
ended() {
    local r code
    wait_until 60 have_ended || complain "a rank does not end: $(tail -n 2 err.?)"
    for r in 0 1 2 3; do
        code=0
        wait "${processes[r]}" || code=$?
        [ $code = "$1" ] || complain "rank $r: exit code $code instead of $1: $(tail -n 3 "err.$r")"
    done
    processes=()
}
weights() {
    find run/checkpoints/step-00000012/state -type f -exec sha256sum {} + | sort -k 2 | sha256sum
}

make_run training.steps=12 "${keys[@]}"
expect 0 "saved step-0*12" "$echelon" train run.yaml --ranks 4 parallel.comm=local
local_weights=$(weights)
rm -rf run
begin
ended 0
[ "$(weights)" = "$local_weights" ] || complain "two machines train other weights than one"

make_run training.steps=100000 "${keys[@]}" parallel.deadline=8 checkpoint.keep=2 \
    training.check_every=0
rm -rf run
begin
has_saved() {
    [ "$(newest)" -gt 0 ]
}
wait_until 60 has_saved || complain "it does not save"
ip -n "${ends[0]}" link set "${devices[0]}" down
ended 1
# At each end one says whom it waited for; the other ends with it.
grep -Eqs "error: rank [01] waited .*rank [23]" err.[01] ||
    complain "ranks 0 and 1 name nobody: $(tail -n 3 err.[01])"
grep -Eqs "error: rank [23] waited .*rank [01]" err.[23] ||
    complain "ranks 2 and 3 name nobody: $(tail -n 3 err.[23])"
saved=$(newest)
ip -n "${ends[0]}" link set "${devices[0]}" up
make_run training.steps=$((saved + 4)) "${keys[@]}"
begin
ended 0
[ "$(newest)" = $((saved + 4)) ] || complain "it goes on from step $saved to step $(newest)"
conclude
