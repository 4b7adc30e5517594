// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "program/session.h"

namespace ingero::workload {

// Each makes its calls and returns; README.md says what each does.
void scenario_mixed(Context& context);
void scenario_datatypes(Context& context);
void scenario_copies(Context& context);
void scenario_allreduce(Context& context);
void scenario_memcpy(Context& context);
void scenario_threads(Context& context);
void scenario_nested(Context& context);
void scenario_errors(Context& context);
void scenario_inits(Context& context);
void scenario_fork(Context& context);
void scenario_forkstorm(Context& context);
void scenario_exec(Context& context);
void scenario_longjmp(Context& context);
void scenario_seccomp(Context& context);
void scenario_real(Context& context);

// Steps that several scenarios share.
void mixed_round(Session& session, const struct Communicator& comm);

// The result as JSON; built without a system call that a strict seccomp filter refuses.
std::string result_json(const Context& context);
// A descriptor for --tally.
int open_result(const std::string& path);
// Writes all of it by write(2).
void write_all(int descriptor, const std::string& text);
void hold(const Options& options);

}  // namespace ingero::workload
