package image

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// maxCredentialFile bounds the node's credential files, in bytes.
const maxCredentialFile = 10 << 20

// auth is one registry's entry in the files that docker login writes.
type auth struct {
	Username      string `json:"username"`
	Password      string `json:"password"`
	Email         string `json:"email"`
	Auth          string `json:"auth"`
	IdentityToken string `json:"identitytoken"`
	RegistryToken string `json:"registrytoken"`
}

// auths are entries by registry, raw so that one malformed entry doesn't spoil the others.
type auths map[string]json.RawMessage

// credentialsOf reads all credentials that may be used for a pod: those of its secrets, then the node's. The
// problems name what couldn't be read.
func credentialsOf(secrets []corev1.Secret, dirs []string) (k keyring, problems []string) {
	var pod, node keyring
	for i := range secrets {
		entries, err := secretAuths(&secrets[i])
		if err == nil {
			err = pod.add(entries, &secrets[i])
		}
		if err != nil {
			problems = append(problems, fmt.Sprintf("pull secret %s/%s: %v", secrets[i].Namespace, secrets[i].Name, err))
		}
	}
	entries, path, err := nodeAuths(dirs)
	if err == nil {
		err = node.add(entries, nil)
	}
	if err != nil {
		problems = append(problems, fmt.Sprintf("credentials of the node in %s: %v", path, err))
	}
	return slices.Concat(pod.sorted(), node.sorted()), problems
}

// secretAuths reads a secret of one of the two types that hold registry credentials; others are of no interest.
func secretAuths(s *corev1.Secret) (auths, error) {
	switch s.Type {
	case corev1.SecretTypeDockerConfigJson:
		return parseConfigJSON(s.Data[corev1.DockerConfigJsonKey])
	case corev1.SecretTypeDockercfg:
		return parseDockercfg(s.Data[corev1.DockerConfigKey])
	}
	return nil, nil
}

// nodeAuths reads the first config.json in the directories, or else the first .dockercfg.
func nodeAuths(dirs []string) (auths, string, error) {
	for _, file := range []struct {
		name  string
		parse func([]byte) (auths, error)
	}{{"config.json", parseConfigJSON}, {".dockercfg", parseDockercfg}} {
		for _, dir := range dirs {
			path := filepath.Join(dir, file.name)
			text, err := readCredentialFile(path)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return nil, path, err
			}
			entries, err := file.parse(text)
			return entries, path, err
		}
	}
	return nil, "", nil
}

func readCredentialFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxCredentialFile+1))
	if err == nil && len(text) > maxCredentialFile {
		err = fmt.Errorf("larger than %d bytes", maxCredentialFile)
	}
	return text, err
}

// The errors of encoding/json quote what they choke on, which may be a password: they are not passed on.

func parseConfigJSON(text []byte) (auths, error) {
	var config struct {
		Auths auths `json:"auths"`
	}
	if len(text) == 0 {
		return nil, nil
	}
	if json.Unmarshal(text, &config) != nil {
		return nil, errors.New("not a docker config.json")
	}
	return config.Auths, nil
}

func parseDockercfg(text []byte) (auths, error) {
	var entries auths
	if len(text) == 0 {
		return nil, nil
	}
	if json.Unmarshal(text, &entries) != nil {
		return nil, errors.New("not a .dockercfg")
	}
	return entries, nil
}

// add takes the entries of a secret in, or of the node's file, which is none; the error names those that are malformed.
func (k *keyring) add(entries auths, of *corev1.Secret) error {
	var problems []string
	for _, location := range slices.Sorted(maps.Keys(entries)) {
		var a auth
		err := errors.New("malformed entry")
		if json.Unmarshal(entries[location], &a) == nil {
			err = k.addOne(location, a, of)
		}
		if err != nil {
			problems = append(problems, fmt.Sprintf("registry %s: %v", location, err))
		}
	}
	if len(problems) > 0 {
		return errors.New(strings.Join(problems, ", "))
	}
	return nil
}

// decodeAuth splits base64("user:password"), with or without padding.
func decodeAuth(text string) (user, password string, err error) {
	plain, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(strings.TrimSpace(text), "="))
	if err != nil {
		return "", "", errors.New("the auth field is not base64")
	}
	user, password, ok := strings.Cut(string(plain), ":")
	if !ok {
		return "", "", errors.New("the auth field is not base64 of user:password")
	}
	return user, password, nil
}

// CredentialDirs are the directories that may have the node's own registry credentials, in the kubelet's order.
func CredentialDirs(rootDir string) []string {
	dirs := []string{rootDir}
	if home, err := os.UserHomeDir(); err == nil {
		dirs = append(dirs, filepath.Join(home, ".docker"), home)
	}
	return append(dirs, "/.docker", "/")
}
