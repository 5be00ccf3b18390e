// Runs oneDNN's OpenMP regions on the thread team of this module.
#pragma once

namespace mgx {

int requested_team_size(); // team size of the calling thread's next regions; 0: all threads of the process
void request_team_size(int threads);
void redirect_onednn(); // redirects oneDNN's calls of the OpenMP runtime to the team; the first call does the work

} // namespace mgx
