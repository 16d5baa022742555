// Precompiled for the sources of libmultihead: what nearly all of them include. A header here costs every source the
// instantiation of its inline functions' templates, so one that few sources need is not here.
#include "base/json_types.h"
#include "nn/aten.h"
