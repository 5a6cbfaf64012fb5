/*
 * Copyright (c) 2026, The vTorque authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * Stands for the component tm that an Open MPI built with Torque's library has, in the framework FRAMEWORK (plm or
 * ras).  In a job of PBS that one does the framework's work; this one says that it was asked, and leaves it to others.
 */
#include "orte_config.h"
#include "opal/mca/base/base.h"
#include "opal/mca/mca.h"
#include "orte/constants.h"
#include "orte/mca/mca.h"
#include <stdio.h>
#include <stdlib.h>

#define TEXT_OF(word) #word
#define TEXT(word) TEXT_OF(word)
#define NAMED(framework) mca_##framework##_tm_component
#define COMPONENT(framework) NAMED(framework)

static int query(mca_base_module_t **module, int *priority)
{
    if (getenv("PBS_ENVIRONMENT") && getenv("PBS_JOBID"))
        fprintf(stderr, "tm is asked for %s\n", TEXT(FRAMEWORK));
    *module = NULL;
    *priority = 0;
    return ORTE_ERROR;
}

mca_base_component_t COMPONENT(FRAMEWORK) = {
    ORTE_MCA_BASE_VERSION_2_1_0(TEXT(FRAMEWORK), 2, 0, 0),
    .mca_component_name = "tm",
    .mca_component_major_version = OMPI_MAJOR_VERSION,
    .mca_component_minor_version = OMPI_MINOR_VERSION,
    .mca_component_release_version = OMPI_RELEASE_VERSION,
    .mca_query_component = query,
};
