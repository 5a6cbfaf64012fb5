#!/bin/sh
#PBS -l nodes=1:ppn=3
#PBS -vm vms_per_node=2,vcpus=1,unclot=true,unclot_shmem=64M
# Round trips between the two guests of this job, which are on one host.  Give it the place of the program, if that is
# not the home: vsub -v PROGRAM=/opt-hpc/bin/pingpong pingpong.sh
PROGRAM=${PROGRAM:-$HOME/pingpong}
for peer in $VTORQUE_SHM_PEERS; do
    [ "$peer" = "$(hostname)" ] || break
done
echo "$VTORQUE_SHM: $VTORQUE_SHM_SIZE bytes, shared by $VTORQUE_SHM_PEERS"
ssh "$peer" "$PROGRAM" pong &
"$PROGRAM" ping "$peer" && wait $!
