#include <nanobind/nanobind.h>

#include "bindings/bind.h"

NB_MODULE(_native, module) {
  module.doc() = "The compiled part of tenure. Use the names of the package `tenure`; this module is no interface.";
  // Programs end with threads and globals that hold objects of ours; the warnings would be theirs to read.
  nanobind::set_leak_warnings(false);
  tenure::python::BindErrors(module);
  tenure::python::BindRules(module);
  tenure::python::BindHashes(module);
  tenure::python::BindKeys(module);
  tenure::python::BindPools(module);
  tenure::python::BindEmbeddedPool(module);
  tenure::python::BindDaemonPool(module);
  tenure::python::BindDaemonHost(module);
  tenure::python::BindLookup(module);
  tenure::python::BindEngineScheduler(module);
  tenure::python::BindEngineWorker(module);
  tenure::python::BindMooncake(module);
  tenure::python::BindPdWire(module);
  tenure::python::BindPdScheduler(module);
  tenure::python::BindPdTransport(module);
  tenure::python::BindPdLayout(module);
  tenure::python::BindPdServices(module);
  tenure::python::BindPdEndpoints(module);
}
