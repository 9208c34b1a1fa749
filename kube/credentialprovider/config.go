package credentialprovider

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	yamlreader "k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

const (
	configKind = "CredentialProviderConfig"
	// configV1 is the only version of the configuration that has tokenAttributes.
	configV1 = "kubelet.config.k8s.io/v1"
	// maxConfig bounds a configuration file, in bytes.
	maxConfig = 10 << 20
)

var configVersions = []string{configV1, "kubelet.config.k8s.io/v1beta1", "kubelet.config.k8s.io/v1alpha1"}

// configuration is a CredentialProviderConfig of any version.
type configuration struct {
	metav1.TypeMeta `json:",inline"`

	Providers []providerConfig `json:"providers"`
}

type providerConfig struct {
	// Name is that of the program, without a directory.
	Name                 string           `json:"name"`
	MatchImages          []string         `json:"matchImages"`
	DefaultCacheDuration *metav1.Duration `json:"defaultCacheDuration"`
	// APIVersion is that of request and response.
	APIVersion      string           `json:"apiVersion"`
	Args            []string         `json:"args"`
	Env             []variable       `json:"env"`
	TokenAttributes *tokenAttributes `json:"tokenAttributes"`

	// where is the provider's place in the configuration, for errors.
	where string
}

type variable struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// tokenAttributes say that a provider is given a service account token of the pod.
type tokenAttributes struct {
	Audience            string   `json:"serviceAccountTokenAudience"`
	CacheType           string   `json:"cacheType"`
	RequireAccount      *bool    `json:"requireServiceAccount"`
	RequiredAnnotations []string `json:"requiredServiceAccountAnnotationKeys"`
	OptionalAnnotations []string `json:"optionalServiceAccountAnnotationKeys"`
}

// readConfig reads the file, or the *.json, *.yaml and *.yml files of the directory in the order of their names. The
// hash is what the metric kubelet_credential_provider_config_info shows of them.
func readConfig(path string) (providers []providerConfig, hash string, err error) {
	files, err := configFiles(path)
	if err != nil {
		return nil, "", err
	}
	sum := sha256.New()
	for _, file := range files {
		data, err := readBounded(file)
		if err != nil {
			return nil, "", err
		}
		sum.Write(binary.BigEndian.AppendUint64(nil, uint64(len(data))))
		sum.Write(data)
		c, err := decodeConfig(data)
		if err != nil {
			return nil, "", fmt.Errorf("%s: %w", file, err)
		}
		for i, p := range c.Providers {
			p.where = fmt.Sprintf("%s: providers[%d]", file, i)
			providers = append(providers, p)
		}
	}
	if len(providers) == 0 {
		return nil, "", fmt.Errorf("%s: names no provider: add one to the list providers", path)
	}
	return providers, fmt.Sprintf("sha256:%x", sum.Sum(nil)), nil
}

func configFiles(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return []string{path}, err
	}
	entries, err := os.ReadDir(path) // sorted by name
	if err != nil {
		return nil, err
	}
	var files []string
	for _, e := range entries {
		if !e.IsDir() && slices.Contains([]string{".json", ".yaml", ".yml"}, filepath.Ext(e.Name())) {
			files = append(files, filepath.Join(path, e.Name()))
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("directory %s has no *.json, *.yaml or *.yml file: put a %s into it", path, configKind)
	}
	return files, nil
}

func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	if err == nil && len(data) > maxConfig {
		err = fmt.Errorf("%s is larger than %d bytes: is it a %s?", path, maxConfig, configKind)
	}
	return data, err
}

// decodeConfig decodes strictly: what isn't known or is there twice is an error, as in the kubelet.
func decodeConfig(data []byte) (configuration, error) {
	var c configuration
	document, err := onlyDocument(data)
	if err != nil {
		return c, err
	}
	raw, err := yaml.YAMLToJSONStrict(document)
	if err != nil {
		return c, fmt.Errorf("is neither valid YAML nor JSON: %w", err)
	}
	strict, err := kjson.UnmarshalStrict(raw, &c)
	if err := errors.Join(append(strict, err)...); err != nil {
		return c, err
	}
	if c.Kind != configKind || !slices.Contains(configVersions, c.APIVersion) {
		return c, fmt.Errorf("has apiVersion %q and kind %q, want one of %q and %q", c.APIVersion, c.Kind,
			configVersions, configKind)
	}
	for i := range c.Providers {
		if c.Providers[i].TokenAttributes != nil && c.APIVersion != configV1 {
			return c, fmt.Errorf("providers[%d].tokenAttributes: %s doesn't have this field: change the file's apiVersion to %s",
				i, c.APIVersion, configV1)
		}
	}
	return c, nil
}

// onlyDocument returns the file's only YAML document. A second one would be left out without a word.
func onlyDocument(data []byte) ([]byte, error) {
	var only []byte
	reader := yamlreader.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return only, nil
		}
		if err != nil {
			return nil, fmt.Errorf("is neither valid YAML nor JSON: %w", err)
		}
		if raw, err := yaml.YAMLToJSON(document); err == nil && bytes.Equal(raw, []byte("null")) {
			continue
		}
		if only != nil {
			return nil, fmt.Errorf("holds several YAML documents, but only one %s is read: "+
				"put each into a file of its own, and name the directory", configKind)
		}
		only = document
	}
}
