#include "fs/transport/transport.h"

namespace varve::fs {

const char* transport_name(TransportKind kind) {
  switch (kind) {
    case TransportKind::kAuto:
      return "auto";
    case TransportKind::kRing:
      return "ring";
    case TransportKind::kDev:
      return "dev";
  }
  return "";
}

}  // namespace varve::fs
