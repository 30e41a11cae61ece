/// @file
/// As tandem/hvd.h, with its namespace as tandem::horovod, too.
#pragma once

#include "tandem/names.h"
