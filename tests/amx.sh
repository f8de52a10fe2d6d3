#!/bin/sh
# Products by Intel AMX on an emulated processor: Debian's Linux boots on Bochs as a Sapphire Rapids, finds the tiles,
# lends them to a process that asks, and the products of test_amx have the bits of the reference with the very instructions.
#     tests/amx.sh
# It is no part of the normal suites.  It needs a build in ./build and, on Debian 12 as root,
#     apt-get install mmdebstrap g++ make patch
# and packages of Debian 13 in a folder, KVFATE_AMX (default: ~/.cache/kvfate/amx):
#     mmdebstrap --variant=extract --include=linux-image-cloud-amd64,busybox-static,isolinux,syslinux-common,xorriso,bochsbios,vgabios trixie FOLDER
# with the source of its Bochs, pool/main/b/bochs/bochs_3.0+dfsg.orig.tar.xz, unpacked as FOLDER/bochs.  The first run builds
# it with tests/amx_bochs.patch, which takes a quarter of an hour: Linux gives tiles only on a processor that can withhold them
# until their first use (XFD), which Bochs 3.0 lacks, its TDPBSUD takes the signed bytes for unsigned ones, and of tiles it brings
# back something else than it had put aside when another program, or a signal, came between.
set -eu
cd "$(dirname "$0")/.."
root=${KVFATE_AMX:-$HOME/.cache/kvfate/amx}
for file in boot usr/lib/ISOLINUX/isolinux.bin usr/bin/xorriso usr/bin/busybox usr/share/bochs bochs/configure; do
    [ -e "$root/$file" ] || { echo "skipped: $root/$file is not there; the head of tests/amx.sh says how to get it"; exit 77; }
done
[ -e build/engine/libkvf_engine.a ] || { echo "build/engine/libkvf_engine.a is not there: build first"; exit 1; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# ---- the processor
if [ ! -x "$root/bochs/bochs" ]; then
    patch -p1 -N -d "$root/bochs" < tests/amx_bochs.patch
    (cd "$root/bochs" && ./configure --with-nogui --enable-cpu-level=6 --enable-x86-64 --enable-avx --enable-evex --enable-amx --enable-pci \
        --enable-protection-keys --enable-cet --enable-uintr --enable-memtype --enable-all-optimizations --enable-cdrom --disable-plugins --disable-show-ips \
        --disable-docbook && make -j"$(nproc)") > "$dir/log" 2>&1 || { tail "$dir/log"; exit 1; }
fi

# ---- the test, and a system that runs nothing else
mkdir -p "$dir/files/bin" "$dir/files/proc" "$dir/disc"
ninja -C build engine/libkvf_engine.a base/libkvf_base.a tests/kernels/libamx_emulated.a > /dev/null
cc -static -std=c11 -O2 -D_GNU_SOURCE -Wno-missing-field-initializers -Wno-unused-function -Itests/format/bare -Itests/kernels -I. -Ibase/include \
    tests/kernels/test_amx.c tests/format/bare/main.c build/tests/kernels/libamx_emulated.a build/engine/libkvf_engine.a \
    build/base/libkvf_base.a -lm -pthread -o "$dir/files/bin/test_amx"
cp "$root/usr/bin/busybox" "$dir/files/bin/"
cat > "$dir/files/init" <<'END'
#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox grep -m 1 -o amx_int8 /proc/cpuinfo
/bin/test_amx instructions && echo "test_amx passed"
/bin/busybox sleep 1
/bin/busybox reboot -f
END
chmod +x "$dir/files/init"

# ---- a disc with Linux, which writes to the serial port
(cd "$dir/files" && find . | bin/busybox cpio -o -H newc 2> /dev/null > ../disc/initrd)
cp "$root"/boot/vmlinuz-* "$dir/disc/vmlinuz"
cp "$root/usr/lib/ISOLINUX/isolinux.bin" "$root/usr/lib/syslinux/modules/bios/ldlinux.c32" "$dir/disc/"
cat > "$dir/disc/isolinux.cfg" <<'END'
default linux
prompt 0
label linux
 kernel vmlinuz
 append initrd=initrd console=ttyS0 quiet mitigations=off acpi=off idle=poll reboot=t
END
libs=$root/usr/lib/x86_64-linux-gnu
"$root/lib64/ld-linux-x86-64.so.2" --library-path "$libs" "$root/usr/bin/xorriso" -as mkisofs -quiet -o "$dir/disc.iso" \
    -b isolinux.bin -c boot.cat -no-emul-boot -boot-load-size 4 -boot-info-table "$dir/disc" 2> /dev/null

# ---- the machine; the end of a system is a triple fault, which ends Bochs.  Without ACPI, whose calls of the firmware Bochs does
# not survive, and without idling by instructions that release tiles, which the patch withholds, too
cat > "$dir/machine" <<END
config_interface: textconfig
display_library: nogui
memory: guest=512, host=512
cpu: model=sapphire_rapids, count=1, ips=50000000, reset_on_triple_fault=0
romimage: file=$root/usr/share/bochs/BIOS-bochs-latest
vgaromimage: file=$root/usr/share/bochs/VGABIOS-lgpl-latest
boot: cdrom
ata0: enabled=1
ata0-master: type=cdrom, path=$dir/disc.iso, status=inserted
com1: enabled=1, mode=file, dev=$dir/serial
log: $dir/log
panic: action=fatal
error: action=ignore
info: action=ignore
END
timeout 3600 "$root/bochs/bochs" -q -f "$dir/machine" > "$dir/out" 2>&1 < /dev/null || true
tr -d '\r' < "$dir/serial" > "$dir/said"
cat "$dir/said"
grep -q '^amx_int8' "$dir/said" || { tail "$dir/log"; echo "Linux found no tiles"; exit 1; }
grep -q '^AMX: not on this CPU' "$dir/said" && { echo "the tests found no tiles"; exit 1; }
grep -q '^test_amx passed' "$dir/said" || { echo "test_amx failed"; exit 1; }
