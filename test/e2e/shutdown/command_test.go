package shutdown

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/test/e2e/kit"
)

// command runs kubelot shutdown.
func (r *rig) command(args ...string) (string, error) {
	stdout, stderr, _, err := r.run(args...)
	return stdout + stderr, err
}

// run runs kubelot shutdown, and again where the bus didn't answer in time: then it has asked for nothing.
func (r *rig) run(args ...string) (stdout, stderr string, code int, err error) {
	ctx, cancel := context.WithTimeout(r.t.Context(), kit.Patience)
	defer cancel()
	args = append([]string{"shutdown"}, append(args, "--run-dir="+r.Node.RunDir())...)
	for {
		var out, errs strings.Builder
		cmd := exec.CommandContext(ctx, r.Program("kubelot"), args...)
		cmd.Stdout, cmd.Stderr = &out, &errs
		err := cmd.Run()
		if err != nil && ctx.Err() == nil && strings.Contains(errs.String(), "the bus doesn't answer within") {
			continue
		}
		return out.String(), errs.String(), cmd.ProcessState.ExitCode(), err
	}
}

// tryState is what kubelot says of the shutdown. While daemons start again it may take longer than the command waits.
func (r *rig) tryState() (s topic.Shutdown, err error) {
	out, err := r.command("state", "-o", "json")
	if err == nil {
		err = json.Unmarshal([]byte(out), &s)
	}
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return s, err
}

// state is tryState that must succeed.
func (r *rig) state() (s topic.Shutdown) {
	r.t.Helper()
	kit.Eventually(r.t, "the state of the shutdown", func() (err error) {
		s, err = r.tryState()
		return err
	})
	return s
}

// answer runs kubelot shutdown with -o json and returns what it has written to standard output. That is JSON and
// nothing else, or nothing if the command fails with exit code 1; then the reason is on standard error.
func (r *rig) answer(code int, reason string, args ...string) (s topic.Shutdown) {
	r.t.Helper()
	stdout, stderr, got, err := r.run(append(args, "-o=json")...)
	if got != code {
		r.t.Fatalf("kubelot shutdown %s: %v, want exit code %d\n%s%s", strings.Join(args, " "), err, code, stdout, stderr)
	}
	if code != 0 {
		if stdout != "" || !strings.Contains(stderr, reason) {
			r.t.Errorf("kubelot shutdown %s has written %q and %q, want %q", strings.Join(args, " "), stdout, stderr, reason)
		}
		return s
	}
	if err := json.Unmarshal([]byte(stdout), &s); err != nil || stderr != "" {
		r.t.Fatalf("kubelot shutdown %s: %v\n%s%s", strings.Join(args, " "), err, stdout, stderr)
	}
	return s
}

// asJSON is for scripts: the answers of start, state and cancel, and their exit codes.
func (r *rig) asJSON() {
	r.apply("scripted", obeys, "")
	r.runs("scripted")
	r.answer(1, "want a second at least", "start", "--grace-period=10ms")
	r.answer(1, "isn't shutting down", "cancel")
	began := time.Now()
	done := r.answer(0, "", "start", "--grace-period=10m", "--critical-grace-period=5m")
	if !done.Active || done.Trigger != topic.ByCommand || done.Started.Before(began) || done.Done.Before(done.Started) ||
		done.Message != "" || len(done.Groups) != 2 || done.Groups[0].GracePeriodSeconds != 300 {
		r.t.Errorf("the shutdown is %+v", done)
	}
	r.terminated("scripted")
	if s := r.answer(0, "", "state"); !s.Done.Equal(done.Done) || !s.Active {
		r.t.Errorf("the state is %+v, and was %+v at the end", s, done)
	}
	if s := r.answer(0, "", "cancel"); s.Active || !s.Started.Equal(done.Started) {
		r.t.Errorf("cancelled it is %+v", s)
	}
	r.ready(corev1.ConditionTrue, "")

	// It answers nobody while it stands still. What it is asked then it does afterwards.
	r.Signal(r.t, "gc", syscall.SIGSTOP)
	r.answer(1, "", "cancel")
	r.Signal(r.t, "gc", syscall.SIGCONT)
	kit.Eventually(r.t, "the lock", func() error { return r.locks(1) })
}
