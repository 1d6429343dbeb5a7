#pragma once

#include "base/tool_io.h"

namespace varve::layer_pack {

/// The whole of layer-pack(1); returns its exit status. Reads VARVE_STORE from the environment.
int layer_pack_main(int argc, const char* const* argv, const ToolIo& io);

}  // namespace varve::layer_pack
