package embed

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"kubelot.dev/daemon/atomicfile"
)

// KeyFile is the private key of one daemon in a key directory.
func KeyFile(dir, daemon string) string { return filepath.Join(dir, daemon+".nk") }

// users are the members of the crew with their keys, which are made where they don't exist yet.
func (s *Server) users() ([]*server.NkeyUser, error) {
	var users []*server.NkeyUser
	for _, m := range s.options.Crew.Daemons {
		path := KeyFile(s.options.KeyDir, m.Name)
		public, err := publicKey(path)
		if errors.Is(err, os.ErrNotExist) {
			public, err = makeKey(path)
		}
		if err != nil {
			return nil, fmt.Errorf("start the bus: the key of %s: %w", m.Name, err)
		}
		users = append(users, &server.NkeyUser{Nkey: public, Permissions: permissions(m)})
	}
	return users, nil
}

func publicKey(path string) (string, error) {
	seed, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	pair, err := nkeys.ParseDecoratedUserNKey(seed)
	if err != nil {
		return "", fmt.Errorf("%s holds no key: %w; remove it and a new one is made", path, err)
	}
	return pair.PublicKey()
}

// makeKey writes a new key.
func makeKey(path string) (string, error) {
	pair, err := nkeys.CreateUser()
	if err != nil {
		return "", err
	}
	seed, err := pair.Seed()
	if err != nil {
		return "", err
	}
	if err := atomicfile.Write(path, append(seed, '\n'), 0o600); err != nil {
		return "", err
	}
	return pair.PublicKey()
}
