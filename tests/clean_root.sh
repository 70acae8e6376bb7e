#!/bin/sh
# clean_root.sh DEB VENV - does the package work where nothing else is? Root only; needs mmdebstrap and Debian's archive.
#
# Makes a Debian root from packages, installs DEB into it with what it depends on, shows VENV (torch, triton) to it
# read-only, starts the daemon as the unit does, verifies one kernel, stops, removes and purges, and looks for leftovers.
set -eu

deb=$(readlink -f "$1")
venv=$(readlink -f "$2")
port=${PORT:-18080}
root=$(mktemp -d /tmp/verifierd-root-XXXXXX)
trap 'rm -rf --one-file-system "$root"' EXIT

mmdebstrap --quiet --variant=minbase --customize-hook="copy-in $deb /root" \
    --customize-hook='chroot "$1" sh -c "apt-get install -qq -y --no-install-recommends /root/*.deb"' \
    "$(. /etc/os-release && echo "$VERSION_CODENAME")" "$root" >"$root.log" 2>&1 || { tail -30 "$root.log"; exit 1; }
rm -f "$root.log"
cat >"$root/root/try" <<'END'
set -eu
unit=/lib/systemd/system/verifierd.service
start=$(sed -n 's/^ExecStart=//p' $unit)
mkdir -p /var/lib/verifierd
chmod 711 /var/lib/verifierd
url=http://127.0.0.1:$PORT
$start --listen "127.0.0.1:$PORT" >/root/log 2>&1 &
daemon=$!
tries=0
until verifier --url "$url" status >/dev/null 2>&1; do
    kill -0 $daemon || { cat /root/log; exit 1; }
    tries=$((tries + 1))
    [ $tries -lt 120 ] || { cat /root/log; exit 1; }
    sleep 1
done
verifier --url "$url" selftest --quick
kill $daemon
wait $daemon
export DEBIAN_FRONTEND=noninteractive
apt-get remove -qq -y -o Dpkg::Use-Pty=0 verifierd
test -f /etc/verifierd.conf && test -d /var/lib/verifierd
apt-get purge -qq -y -o Dpkg::Use-Pty=0 verifierd
left=$(find / -xdev -name '*verifierd*' -not -path '/proc/*' -not -path '/root/*' -not -path '/opt/*' -not -path '/var/cache/*' -not -path '/var/log/*')
[ -z "$left" ] || { echo "left behind: $left"; exit 1; }
echo 'clean root: installed, verified, removed; nothing left behind'
END
mkdir -p "$root/opt/verifierd/venv"
PORT=$port unshare --mount --pid --fork sh -eu -c '
    mount --bind "$1" "$1"
    mount --bind "$2" "$1/opt/verifierd/venv"
    mount -o remount,bind,ro "$1/opt/verifierd/venv"
    mount -t proc proc "$1/proc"
    mount --rbind /dev "$1/dev"
    mount --rbind /sys "$1/sys"
    cd "$1"
    pivot_root . mnt # no chroot: in one no namespace of mounts can be made
    umount -l /mnt
    exec sh /root/try' sh "$root" "$venv"
