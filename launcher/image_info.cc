#include "launcher/image_info.h"

#include <fcntl.h>
#include <sys/xattr.h>

#include <algorithm>
#include <cerrno>

#include "base/file_io.h"

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

Status drop_hidden_layers(std::vector<LayerInfo>& layers, std::vector<UniqueFd>& mounts) {
  // Nothing lies below the lowest.
  for (size_t i = layers.size(); i-- > 1;) {
    VARVE_ASSIGN(const UniqueFd root, open_file_at(mounts[i].get(), ".", O_RDONLY | O_DIRECTORY));
    char value = 0;
    const ssize_t size = ::fgetxattr(root.get(), "trusted.overlay.opaque", &value, sizeof value);
    if (size < 0 && errno != ENODATA && errno != EOPNOTSUPP && errno != ERANGE) {
      return fail_errno("reading the marks of layer " + quoted(layers[i].id));
    }
    if (size != 1 || value != 'y') continue;
    layers.erase(layers.begin(), layers.begin() + static_cast<long>(i));
    mounts.erase(mounts.begin(), mounts.begin() + static_cast<long>(i));
    break;
  }
  return {};
}

}  // namespace varve::launcher
