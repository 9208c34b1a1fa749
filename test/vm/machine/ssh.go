package machine

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/crypto/ssh"
)

const (
	// dialTimeout is for one attempt: qemu takes connections before there is anybody to answer.
	dialTimeout = 30 * time.Second
	shown       = 3000 // bytes of a command's output in its error
)

// makeKeys makes the key of the user and that of the machine, and returns the files by which the machine has them.
func (m *Machine) makeKeys() ([]File, error) {
	user, userPEM, err := newKey()
	if err != nil {
		return nil, err
	}
	host, hostPEM, err := newKey()
	if err != nil {
		return nil, err
	}
	m.signer, m.host = user, host.PublicKey()
	// For people, who take the ssh command.
	known := fmt.Sprintf("[127.0.0.1]:%d %s", m.opts.SSHPort, ssh.MarshalAuthorizedKey(m.host))
	err = errors.Join(os.WriteFile(m.path("id"), userPEM, 0o600),
		os.WriteFile(m.path("known_hosts"), []byte(known), 0o600))
	return []File{
		{Path: "/root/.ssh/authorized_keys", Mode: 0o600, Text: string(ssh.MarshalAuthorizedKey(user.PublicKey()))},
		{Path: "/etc/ssh/ssh_host_ed25519_key", Mode: 0o600, Text: string(hostPEM)},
	}, err
}

func newKey() (ssh.Signer, []byte, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make an ssh key: %w", err)
	}
	block, err := ssh.MarshalPrivateKey(private, "kubelot's tests")
	if err != nil {
		return nil, nil, fmt.Errorf("make an ssh key: %w", err)
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		return nil, nil, fmt.Errorf("make an ssh key: %w", err)
	}
	return signer, pem.EncodeToMemory(block), nil
}

// SSH is the command line by which people get a shell in the machine.
func (m *Machine) SSH() string {
	return fmt.Sprintf("ssh -p %d -i %s -o UserKnownHostsFile=%s root@127.0.0.1", m.opts.SSHPort, m.path("id"),
		m.path("known_hosts"))
}

// connection is the one that is open, or a new one.
func (m *Machine) connection(ctx context.Context) (*ssh.Client, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.client != nil {
		return m.client, nil
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(m.opts.SSHPort))
	dialer := net.Dialer{Timeout: dialTimeout}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("connect to the machine: %w", err)
	}
	_ = conn.SetDeadline(time.Now().Add(dialTimeout))
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	link, channels, requests, err := ssh.NewClientConn(conn, address, &ssh.ClientConfig{
		User: "root", Auth: []ssh.AuthMethod{ssh.PublicKeys(m.signer)}, HostKeyCallback: ssh.FixedHostKey(m.host),
	})
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("connect to the machine: %w", err)
	}
	_ = conn.SetDeadline(time.Time{})
	m.client = ssh.NewClient(link, channels, requests)
	return m.client, nil
}

// disconnect gives up the connection; the next command makes another one.
func (m *Machine) disconnect() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.client != nil {
		_ = m.client.Close()
		m.client = nil
	}
}

// Run runs a shell command as root and returns what it writes to its standard output. Its error has the end of all that
// it wrote, and of the console if the machine doesn't answer. Without a deadline in the context it has half an hour.
func (m *Machine) Run(ctx context.Context, command string) (string, error) {
	return m.RunWith(ctx, command, nil)
}

// RunWith is Run with a standard input.
func (m *Machine) RunWith(ctx context.Context, command string, stdin []byte) (string, error) {
	if _, limited := ctx.Deadline(); !limited {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, commandTimeout, fmt.Errorf("waited %v", commandTimeout))
		defer cancel()
	}
	client, err := m.connection(ctx)
	if err != nil {
		return "", err
	}
	session, err := client.NewSession()
	if err != nil {
		m.disconnect()
		return "", fmt.Errorf("run %q in the machine: %w", command, err)
	}
	defer func() { _ = session.Close() }()
	var out, warnings bytes.Buffer
	session.Stdout, session.Stderr = &out, &warnings
	if stdin != nil {
		session.Stdin = bytes.NewReader(stdin)
	}
	ended := make(chan error, 1)
	go func() { ended <- session.Run(command) }()
	select {
	case err = <-ended:
	case <-ctx.Done():
		m.disconnect() // it ends the session, and with it the goroutine
		<-ended        //nolint:errcheck // it says less than the context
		return out.String(), fmt.Errorf("run %q in the machine: %w; end of its console:\n%s", command, context.Cause(ctx),
			m.Console())
	}
	var exit *ssh.ExitError
	switch {
	case err == nil:
		return out.String(), nil
	case errors.As(err, &exit):
		return out.String(), fmt.Errorf("run %q in the machine: %w; it wrote:\n%s%s", command, err, tail(out.String()),
			tail(warnings.String()))
	default:
		m.disconnect()
		return out.String(), fmt.Errorf("run %q in the machine: %w; end of its console:\n%s", command, err, m.Console())
	}
}

// Write makes a file in the machine as a whole, and the directories above it.
func (m *Machine) Write(ctx context.Context, path string, mode os.FileMode, data []byte) error {
	dir, name := filepath.Split(path)
	// Whoever watches the directory takes no notice of a hidden file.
	half := dir + "." + name + ".new"
	_, err := m.RunWith(ctx, fmt.Sprintf("mkdir -p '%s' && cat >'%s' && chmod %o '%[2]s' && mv '%[2]s' '%[4]s'", dir, half,
		mode.Perm(), path), data)
	return err
}

// Copy copies a file of this host into the machine.
func (m *Machine) Copy(ctx context.Context, from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return fmt.Errorf("copy into the machine: %w", err)
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("copy into the machine: %w", err)
	}
	return m.Write(ctx, to, info.Mode(), data)
}

// Dial connects to an address in the machine, such as its container runtime's socket ("unix").
func (m *Machine) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	client, err := m.connection(ctx)
	if err != nil {
		return nil, err
	}
	conn, err := client.DialContext(ctx, network, address)
	if err != nil {
		// A connection that has broken would fail all that come after.
		if rejected := (*ssh.OpenChannelError)(nil); !errors.As(err, &rejected) && ctx.Err() == nil {
			m.disconnect()
		}
		return nil, fmt.Errorf("connect to %s in the machine: %w", address, err)
	}
	return conn, nil
}

func tail(text string) string { return text[max(0, len(text)-shown):] }
