// The devices that a node carries its data by, by the names that the command line has for them
// (reach/hcas.h).
#pragma once

#include "reach/hcas.h"

namespace braid::cli {

using reach::HcaOptions;
using reach::Hcas;
using reach::kRdmaDevices;
using reach::kSoftDevice;
using reach::parse_devices;

}  // namespace braid::cli
