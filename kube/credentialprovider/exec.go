package credentialprovider

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
)

const (
	// runLimit is how long a program may take to answer, the kubelet's.
	runLimit = time.Minute
	// pipesLimit is how long a program's output is read after its end, if another process keeps it open.
	pipesLimit = 2 * time.Second
	// maxAnswer bounds standard output; maxWords is how much of the end of standard error is logged. In bytes.
	maxAnswer = 1 << 20
	maxWords  = 4 << 10
)

var (
	errTooSlow = errors.New("it has not answered within the time limit and was killed")
	errTooLong = fmt.Errorf("it wrote more than %d bytes to standard output and was killed", maxAnswer)
	errNoJSON  = errors.New("its standard output isn't the JSON of a " + responseKind)
)

// request is a CredentialProviderRequest.
type request struct {
	metav1.TypeMeta `json:",inline"`

	Image       string            `json:"image"`
	Token       string            `json:"serviceAccountToken,omitempty"`
	Annotations map[string]string `json:"serviceAccountAnnotations,omitempty"`
}

// response is a CredentialProviderResponse.
type response struct {
	metav1.TypeMeta `json:",inline"`

	CacheKeyType  string           `json:"cacheKeyType"`
	CacheDuration *metav1.Duration `json:"cacheDuration"`
	// Auth are the credentials by the pattern of the images that they are for.
	Auth map[string]login `json:"auth"`
}

type login struct {
	Username string `json:"username"`
	Password string `json:"password"`
}

// program is how a provider is run.
type program struct {
	path       string
	args, env  []string
	apiVersion string
	limit      time.Duration
	// ran is called after each run.
	ran func(took time.Duration, err error)
}

// run asks the program. words are the last of what it wrote to standard error, for the log.
func (p *program) run(ctx context.Context, req request) (resp response, words string, err error) {
	req.TypeMeta = metav1.TypeMeta{Kind: requestKind, APIVersion: p.apiVersion}
	stdin, err := json.Marshal(req)
	if err != nil {
		return response{}, "", fmt.Errorf("encode the request: %w", err)
	}
	began := time.Now()
	stdout, words, err := p.execute(ctx, stdin)
	p.ran(time.Since(began), err)
	if err != nil {
		return response{}, words, err
	}
	resp, err = decodeResponse(stdout, p.apiVersion)
	return resp, words, err
}

// execute runs the program in a process group of its own, which is killed as a whole.
func (p *program) execute(ctx context.Context, stdin []byte) (stdout []byte, words string, err error) {
	ctx, stop := context.WithTimeoutCause(ctx, p.limit, errTooSlow)
	defer stop()
	ctx, kill := context.WithCancelCause(ctx)
	defer kill(nil)
	answer, ending := &bounded{full: func() { kill(errTooLong) }}, &tail{}
	cmd := exec.CommandContext(ctx, p.path, p.args...)
	cmd.Env = append(os.Environ(), p.env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), answer, ending
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return killGroup(cmd.Process) }
	cmd.WaitDelay = pipesLimit
	err = cmd.Run()
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case errors.Is(err, exec.ErrWaitDelay):
		// The group is still there, for it has a process that keeps the output open.
		_ = killGroup(cmd.Process)
		err = errors.New("it has ended, but has left a process behind that keeps its standard output or error open")
	case err != nil:
		err = fmt.Errorf("run %s: %w", p.path, err)
	}
	return answer.text, ending.String(), err
}

func killGroup(p *os.Process) error {
	if err := syscall.Kill(-p.Pid, syscall.SIGKILL); !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return os.ErrProcessDone
}

// decodeResponse decodes strictly. Errors of the decoder may quote a password, so they aren't passed on.
func decodeResponse(text []byte, apiVersion string) (response, error) {
	var meta metav1.TypeMeta
	if json.Unmarshal(text, &meta) != nil {
		return response{}, errNoJSON
	}
	if meta.APIVersion != apiVersion || meta.Kind != responseKind {
		return response{}, fmt.Errorf("its answer has apiVersion %.100q and kind %.100q, want %q and %q", meta.APIVersion,
			meta.Kind, apiVersion, responseKind)
	}
	var r response
	if strict, err := kjson.UnmarshalStrict(text, &r); err != nil || len(strict) > 0 {
		return response{}, errNoJSON
	}
	return r, nil
}

// bounded keeps what is written to it, up to a limit.
type bounded struct {
	text []byte
	full func()
}

func (b *bounded) Write(p []byte) (int, error) {
	if len(b.text)+len(p) > maxAnswer {
		b.full()
		return 0, errTooLong
	}
	b.text = append(b.text, p...)
	return len(p), nil
}

// tail keeps the end of what is written to it.
type tail struct{ end []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.end = append(t.end, p[max(len(p)-maxWords, 0):]...)
	t.end = append(t.end[:0], t.end[max(len(t.end)-maxWords, 0):]...)
	return len(p), nil
}

func (t *tail) String() string { return string(bytes.TrimSpace(t.end)) }
