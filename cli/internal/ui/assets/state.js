// How daemons and pods are drawn: each state has a shape and a colour of its own.

/** The state of a daemon: well, degraded, ill, or unknown before it has reported. */
export function daemonState(daemon) {
  if (!daemon.state) return "unknown";
  if (daemon.state === "healthy" && !daemon.problem) return "well";
  return daemon.state === "degraded" ? "degraded" : "ill";
}

/** The state of a pod: as kubelot why has it, or stuck if it fails again and again. */
export function podState(pod) {
  if (pod.failed || (pod.state === "waiting" && pod.restarts > 2)) return "stuck";
  return pod.state;
}
