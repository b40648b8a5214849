# Formula of Homebrew's for a tap of your own. docs/macs.md says how to use it, and what it lacks.
#
# Nobody has run it, and nothing is released. Before a first use at a release:
#   1. sha256 of the archive below `url`:   shasum -a 256 elasticd-0.1.0.tar.gz
#   2. `resource` stanzas with their hashes: brew update-python-resources elasticd
#   3. brew audit --strict --new elasticd; brew style elasticd
# Until then `brew audit` names the missing sha256 and resources. Its other rules were checked by eye: desc
# (no article, no name, at most 80 letters) and opt_ paths in the service block in rubocops/ of Homebrew/brew;
# the order of the parts, python@3.x and a virtualenv below libexec by formulae of homebrew-core.
# tests/unit/launchd/test_homebrew.py holds it to pyproject.toml and to launchd/plist.py.
class Elasticd < Formula
  include Language::Python::Virtualenv

  desc "Fault-tolerant elastic training daemon for MLX"
  homepage "https://pypi.org/project/elasticd/"
  url "https://files.pythonhosted.org/packages/source/e/elasticd/elasticd-0.1.0.tar.gz"
  license "MIT"

  depends_on "rust" => :build # for blake3 and safetensors
  depends_on arch: :arm64
  depends_on "cryptography" => :no_linkage
  depends_on :macos
  depends_on macos: :sonoma
  depends_on "mlx" => :no_linkage # of one Python alone: that of its own formula
  depends_on "numpy" => :no_linkage
  depends_on "python@3.14"

  pypi_packages package_name:     "elasticd[dashboard,discovery,track]",
                exclude_packages: %w[cryptography mlx numpy]

  def install
    virtualenv_install_with_resources
  end

  def post_install
    # launchd opens the log before the daemon runs. Other accounts have no business there.
    (var/"elasticd").mkpath
    chmod 0700, var/"elasticd"
  end

  def caveats
    <<~EOS
      For a Mac that trains day and night, install the service of the whole Mac:
        sudo elasticctl service install
      It needs no permission for the local network, and runs from boot on. If you have set
      ELASTICD_HOME, say: sudo elasticctl service install --home "$ELASTICD_HOME"

      For your own use, while you are logged in. Put the first line into your shell's
      profile, too. To join a cluster say 'elasticctl cluster join TOKEN' in place of 'init':
        export ELASTICD_HOME="#{var}/elasticd"
        elasticctl cluster init
        brew services start elasticd
      Until you allow Python in System Settings > Privacy & Security > Local Network,
      macOS may keep it from other Macs. Don't say sudo: jobs would run as root.

      A Mac runs one of both. After each 'brew upgrade' restart it. The service of the whole
      Mac:
        sudo elasticctl service restart
      Your own:
        brew services restart elasticd
    EOS
  end

  service do
    run [opt_libexec/"bin/python", "-P", "-m", "elasticd.shell.daemon", "run", "--home", var/"elasticd"]
    keep_alive successful_exit: false
    working_dir var/"elasticd"
    log_path var/"elasticd/daemon.log"
    error_log_path var/"elasticd/daemon.log"
    process_type :interactive
    environment_variables PATH: std_service_path_env, LANG: "en_US.UTF-8", ELASTICD_INCURABLE_ENDS_WELL: "1"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/elasticctl --version")
    # Homebrew has one version of MLX, and no formula can ask for a range.
    mlx = shell_output("#{libexec}/bin/python -c 'from importlib.metadata import version; print(version(\"mlx\"))'")
    assert_operator Version.new(mlx.strip), :>=, Version.new("0.32.4")
    assert_operator Version.new(mlx.strip), :<, Version.new("0.34")
  end
end
