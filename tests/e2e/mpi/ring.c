/*
 * Copyright (c) 2026, The vTorque authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * A number goes round all ranks; each says where it is and what it got, and passes it on with its own rank added.
 * Ends well when rank 0 gets the sum of all ranks.
 */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    int rank, size, length, sum = 0;
    char host[MPI_MAX_PROCESSOR_NAME];

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
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
