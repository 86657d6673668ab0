// The parts of the extension module tenure._native; each adds one idea's names to it. Called once, by module.cc, with
// the interpreter's lock held.
#pragma once

#include <nanobind/nanobind.h>

namespace tenure::python {

void BindErrors(nanobind::module_& module);
void BindRules(nanobind::module_& module);
void BindHashes(nanobind::module_& module);
void BindKeys(nanobind::module_& module);
void BindPools(nanobind::module_& module);
void BindEmbeddedPool(nanobind::module_& module);
void BindDaemonPool(nanobind::module_& module);
void BindDaemonHost(nanobind::module_& module);
void BindLookup(nanobind::module_& module);
void BindEngineScheduler(nanobind::module_& module);
void BindEngineWorker(nanobind::module_& module);
void BindMooncake(nanobind::module_& module);
void BindPdWire(nanobind::module_& module);
void BindPdScheduler(nanobind::module_& module);
void BindPdTransport(nanobind::module_& module);
void BindPdLayout(nanobind::module_& module);
void BindPdServices(nanobind::module_& module);
void BindPdEndpoints(nanobind::module_& module);

}  // namespace tenure::python
