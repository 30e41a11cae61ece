#!/usr/bin/env python3
"""Writes tpu_assignments.h: what TensorFlow's DeviceAssignment.build() returns. Needs tensorflow.

    python3 tests/distribute/tpu_assignments.py > tests/distribute/tpu_assignments.h
"""

import itertools

import numpy as np
from tensorflow.python.tpu.device_assignment import DeviceOrderMode, device_assignment
from tensorflow.python.tpu.topology import Topology

ONES = (1, 1, 1, 1)
PAIR = (1, 1, 1, 2)
# The mesh, the number of tasks, the number of devices that are missing at the end; the shape and
# stride of a computation, the number of replicas, the order.
CASES = [
    ((2, 2, 1, 2), 1, 0, ONES, ONES, 1, "AUTO"),
    ((2, 2, 1, 2), 1, 0, ONES, ONES, 3, "AUTO"),
    ((2, 2, 1, 2), 1, 0, ONES, ONES, 8, "AUTO"),
    ((2, 2, 1, 2), 1, 0, PAIR, ONES, 2, "AUTO"),
    ((2, 2, 1, 2), 1, 0, PAIR, ONES, 4, "AUTO"),
    ((2, 2, 1, 2), 1, 0, PAIR, ONES, 4, "MESH"),
    ((2, 2, 1, 2), 1, 0, PAIR, ONES, 4, "RING"),
    ((2, 2, 1, 2), 1, 0, (2, 2, 1, 2), ONES, 1, "AUTO"),
    ((2, 2, 1, 2), 1, 0, (2, 1, 1, 2), ONES, 2, "AUTO"),
    ((2, 2, 1, 2), 1, 0, (1, 2, 1, 1), ONES, 4, "AUTO"),
    ((2, 2, 1, 2), 1, 0, ONES, (2, 1, 1, 1), 4, "AUTO"),
    ((4, 4, 1, 2), 4, 0, ONES, ONES, 5, "AUTO"),
    ((4, 4, 1, 2), 4, 0, ONES, ONES, 32, "AUTO"),
    ((4, 4, 1, 2), 4, 0, PAIR, ONES, 16, "AUTO"),
    ((4, 4, 1, 2), 4, 0, PAIR, ONES, 7, "AUTO"),
    ((4, 4, 1, 2), 4, 0, (2, 2, 1, 2), ONES, 4, "AUTO"),
    ((4, 4, 1, 2), 4, 0, (2, 2, 1, 2), ONES, 4, "MESH"),
    ((4, 4, 1, 2), 4, 0, (4, 2, 1, 2), ONES, 2, "AUTO"),
    ((4, 4, 1, 2), 4, 0, (2, 2, 1, 1), (2, 2, 1, 1), 8, "AUTO"),
    ((4, 4, 1, 2), 4, 0, (2, 1, 1, 2), (1, 2, 1, 1), 6, "AUTO"),
    ((4, 4, 1, 2), 4, 0, (4, 4, 1, 2), ONES, 1, "RING"),
    ((4, 4, 1, 2), 4, 8, PAIR, ONES, 12, "AUTO"),
    ((4, 4, 1, 2), 4, 16, (2, 2, 1, 1), ONES, 3, "RING"),
    ((4, 4, 2, 1), 4, 0, ONES, ONES, 32, "AUTO"),
    ((4, 1, 4, 1), 4, 0, ONES, ONES, 16, "AUTO"),
    ((1, 4, 2, 2), 4, 0, (1, 4, 2, 2), ONES, 1, "AUTO"),
    ((2, 2, 4, 1), 4, 0, (2, 2, 2, 1), ONES, 2, "AUTO"),
    ((3, 3, 1, 1), 1, 0, ONES, ONES, 9, "AUTO"),
    ((3, 2, 2, 2), 1, 0, ONES, ONES, 11, "AUTO"),
    ((8, 1, 1, 1), 1, 0, (2, 1, 1, 1), (2, 1, 1, 1), 3, "AUTO"),
    ((5, 7, 3, 2), 1, 0, (2, 2, 1, 1), (2, 1, 1, 1), 20, "AUTO"),
]


def topology(mesh, tasks, missing):
    """Devices of a task are the chips of its rows, with the cores of a chip next to each other."""
    x, y, z, c = mesh
    cores = [(i, j, k, n) for k, j, i, n in itertools.product(range(z), range(y), range(x), range(c))]
    cores = cores[:len(cores) - missing]
    tasks -= missing * tasks // (x * y * z * c)
    return Topology(mesh_shape=mesh, device_coordinates=np.array(cores).reshape(tasks, -1, 4))


def braces(numbers):
    return "{" + ", ".join(map(str, numbers)) + "}"


print("""// The assignments of DeviceAssignment.build() in TensorFlow. Written by tpu_assignments.py.
#pragma once

#include "tandem/tpu_system.h"

namespace tandem::testing {

struct TpuAssignment {
  std::array<int, 4> mesh;
  int tasks, missing;  // tasks of the whole mesh; devices that are missing at the end
  distribute::DeviceAssignmentOptions options;
  // The coordinates of each core, four digits, by replica.
  std::vector<std::string> cores;
};

inline const std::vector<TpuAssignment>& tpu_assignments() {
  // clang-format off
  static const std::vector<TpuAssignment> assignments = {""")
for mesh, tasks, missing, shape, stride, replicas, order in CASES:
    found = device_assignment(topology(mesh, tasks, missing), list(shape), list(stride), replicas,
                              DeviceOrderMode[order]).core_assignment
    print(f"    {{{braces(mesh)}, {tasks}, {missing},\n"
          f"     {{{braces(shape)}, {braces(stride)}, {replicas}, "
          f"distribute::DeviceOrderMode::k{order.title()}}},\n     {{", end="")
    width = 5
    for i, replica in enumerate(found):
        text = '"' + " ".join("".join(map(str, core)) for core in replica) + '"'
        if i:
            print(",", end="")
            width += 2
            if width + len(text) > 98:
                print("\n      ", end="")
                width = 6
            else:
                print(" ", end="")
        # Adjacent literals, if a replica does not fit into a line.
        while len(text) > 92:
            print(text[:91] + '"\n      ', end="")
            text = '"' + text[91:]
        print(text, end="")
        width += len(text)
    print("}},")
print("""  };
  // clang-format on
  return assignments;
}

}  // namespace tandem::testing""")
