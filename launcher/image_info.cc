#include "launcher/image_info.h"

#include <algorithm>

namespace varve::launcher {

void drop_repeated_layers(std::vector<LayerInfo>& layers, std::vector<UniqueFd>& mounts) {
  for (size_t i = 0; i < layers.size();) {
    const auto above = layers.begin() + static_cast<long>(i) + 1;
    const bool repeated = std::any_of(
        above, layers.end(), [&](const LayerInfo& layer) { return layer.id == layers[i].id; });
    if (!repeated) {
      ++i;
      continue;
    }
    layers.erase(layers.begin() + static_cast<long>(i));
    if (!mounts.empty()) mounts.erase(mounts.begin() + static_cast<long>(i));
  }
}

}  // namespace varve::launcher
