# Copyright (c) 2026, The vTorque authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tell which of some paths are there, a dangling link too.  Standard output: a list as JSON."""

import json
import os
import sys

print(json.dumps([path for path in json.loads(sys.argv[1]) if os.path.lexists(path)]))
