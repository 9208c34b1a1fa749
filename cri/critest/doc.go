// Package critest has a container runtime of the test's own: a fake that speaks CRI v1 over a unix socket, or in
// memory, and behaves as containerd 2 does where a node agent can tell the difference. Suite is the contract that both
// the fake and a real containerd must meet. Command scripted-cri is the fake as a process of its own.
//
// # Guarantees
//
//   - Names: a sandbox's or container's name with its attempt is reserved from the start of its creation until
//     it is removed, even when the creator's context has ended. A second creator gets containerd's error.
//   - States, times, exit codes and events come in containerd's order; a sandbox's deleted event comes a moment before
//     the sandbox is out of the lists, as there.
//   - Scale: a call costs what its answer does, whatever else runs; thousands of pods come and go and leave nothing
//     behind.
//   - Hooks: any call can be made to fail, to wait or to hang; calls are counted.
//   - It starts no processes: a container runs until it is stopped or told to exit, except that the commands
//     `sh -c "exit N"`, `true` and `false` exit at once.
package critest
