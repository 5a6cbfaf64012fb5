/*
 * Copyright (c) 2026, The vTorque authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * A number goes round all ranks; each says where it is and what it got, and passes it on with its own rank added.
 * Ends well when rank 0 gets the sum of all ranks.
 *
 * ring FILE: a kilobyte goes round, again and again, and each rank checks what it got; rank 0 prints a line for each
 * round, and the ring ends well once the file is there.
 */
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>

enum { PAYLOAD = 1024 };

static unsigned char byte_of(int round, int rank, int at)
{
    return (unsigned char)(round * 31 + rank * 17 + at * 7);
}

static void pass_on(unsigned char *message, int round, int rank, int next)
{
    for (int at = 1; at < PAYLOAD; at++)
        message[at] = byte_of(round, rank, at);
    MPI_Send(message, PAYLOAD, MPI_BYTE, next, 1, MPI_COMM_WORLD);
}

static void receive(unsigned char *message, int round, int former)
{
    MPI_Recv(message, PAYLOAD, MPI_BYTE, former, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int at = 1; at < PAYLOAD; at++)
        if (message[at] != byte_of(round, former, at)) {
            printf("ring broken: another content in round %d\n", round);
            fflush(stdout);
            MPI_Abort(MPI_COMM_WORLD, 3);
        }
}

static int go_round(const char *end, int rank, int size)
{
    unsigned char message[PAYLOAD] = {0};

    for (int round = 1; !message[0]; round++) {
        if (rank == 0) {
            message[0] = access(end, F_OK) == 0;
            pass_on(message, round, rank, (rank + 1) % size);
            receive(message, round, size - 1);
            printf("line %d\n", round);
            fflush(stdout);
            usleep(100000);
        } else {
            receive(message, round, rank - 1);
            pass_on(message, round, rank, (rank + 1) % size);
        }
    }
    MPI_Finalize();
    return 0;
}

int main(int argc, char **argv)
{
    int rank, size, length, sum = 0;
    char host[MPI_MAX_PROCESSOR_NAME];

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc > 1)
        return go_round(argv[1], rank, size);
    MPI_Get_processor_name(host, &length);
    if (rank != 0)
        MPI_Recv(&sum, 1, MPI_INT, rank - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    printf("rank %d of %d on %s got %d\n", rank, size, host, sum);
    fflush(stdout);
    sum += rank;
    if (size > 1) {
        MPI_Send(&sum, 1, MPI_INT, (rank + 1) % size, 0, MPI_COMM_WORLD);
        if (rank == 0)
            MPI_Recv(&sum, 1, MPI_INT, size - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    if (rank == 0)
        printf("round with %d\n", sum);
    MPI_Finalize();
    return rank == 0 && sum != size * (size - 1) / 2;
}
